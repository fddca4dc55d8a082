package io.stratakv;

/** What runs in this thread on behalf of native code, and what it threw: exceptions cannot pass through there, so they wait here until the call is over. */
final class Callbacks {
    private static final ThreadLocal<Callbacks> HERE = ThreadLocal.withInitial(Callbacks::new);

    private int functions;
    private int orders;
    private Throwable thrown;

    private Callbacks() {}

    /** Code of the user's. */
    interface Function<T> {
        T run();
    }

    /** Runs what decides about a record. It may call the store. */
    static <T> T deciding(Function<T> function) {
        Callbacks here = HERE.get();
        here.functions++;
        try {
            return function.run();
        } finally {
            here.functions--;
        }
    }

    /** Runs an order; null if it threw. It may not call the store. */
    static byte[] sorting(Function<byte[]> function) {
        Callbacks here = HERE.get();
        here.orders++;
        try {
            return function.run();
        } catch (Throwable error) {
            here.thrown = error;
            return null;
        } finally {
            here.orders--;
        }
    }

    static void refuseInOrder() {
        if (HERE.get().orders > 0) {
            throw new IllegalStateException("an order must not call the store: it makes a sort key of the key alone");
        }
    }

    static void refuseInCallback(String what) {
        Callbacks here = HERE.get();
        if (here.functions + here.orders > 0) {
            throw new IllegalStateException(
                    what + " by a function that one of its calls is waiting for: do it when that call is over");
        }
    }

    /** What an order threw since this was last asked, or null. */
    static Throwable takeThrown() {
        Callbacks here = HERE.get();
        Throwable taken = here.thrown;
        here.thrown = null;
        return taken;
    }

    /** Throws it as it is. */
    @SuppressWarnings("unchecked")
    static <E extends Throwable> RuntimeException rethrow(Throwable error) throws E {
        throw (E) error;
    }
}
