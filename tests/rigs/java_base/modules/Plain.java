package fairlead.module;

import com.alipay.sofa.koupleless.common.MainApplication;

/** A module that behaves: it starts, says with which arguments, and lets go of everything when it is removed. */
public final class Plain {
    public static void main(String[] args) {
        MainApplication.init();
        System.out.println("plain starts with " + String.join(",", args));
    }
}
