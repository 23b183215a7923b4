package fairlead.module;

/** A module that does not start. */
public final class Failing {
    public static void main(String[] args) {
        throw new IllegalStateException("boom at start");
    }
}
