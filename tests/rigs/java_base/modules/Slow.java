package fairlead.module;

import com.alipay.sofa.koupleless.common.MainApplication;

/** A module whose start takes a while. */
public final class Slow {
    public static void main(String[] args) throws InterruptedException {
        MainApplication.init();
        Thread.sleep(3000);
    }
}
