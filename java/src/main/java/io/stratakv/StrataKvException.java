package io.stratakv;

/** A call failed. The message says what, why, and what to do next; {@link #kind} is for programs. Unless that is {@link Kind#UNKNOWN}, nothing was changed. */
public final class StrataKvException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** Sorts of failures. */
    public enum Kind {
        /** A bad argument; will fail again. */
        USAGE(16),
        /** There is no such store. */
        NOT_FOUND(17),
        /** Damaged data. */
        CORRUPT(18),
        /** The store is open in another process. */
        LOCKED(19),
        /** No space, or no memory for the index. */
        FULL(20),
        /** Not offered by this engine, medium or version of the format. */
        UNSUPPORTED(21),
        /** The device or the system failed. */
        IO(22),
        /** The store is closed. Calls on what was closed from Java do not come that far: they are an {@link IllegalStateException}. */
        CLOSED(23),
        /** The outcome is not known: all of it was done, or nothing. */
        UNKNOWN(24),
        /** Too much waits, or a transaction met conflicts again and again: try again. */
        BUSY(25),
        /** A defect of StrataKV: please report it. */
        INTERNAL(26);

        final int status;

        Kind(int status) {
            this.status = status;
        }
    }

    /** Which sort of failure it is. */
    private final Kind kind;

    StrataKvException(Kind kind, String message) {
        super(message);
        this.kind = kind;
    }

    /**
     * Which sort of failure it is.
     *
     * @return the kind
     */
    public Kind kind() {
        return kind;
    }
}
