package fairlead.module;

import com.alipay.sofa.koupleless.common.MainApplication;

/** A module that the JVM holds on to: its classes (some hundreds, see LeakingParts) are never unloaded. */
public final class Leaking {
    public static void main(String[] args) throws ClassNotFoundException {
        MainApplication.init();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("leaking ends")));
        for (int number = 0; number < LeakingParts.COUNT; number++) {
            Class.forName("fairlead.module.LeakingParts$Part" + number);
        }
    }
}
