package io.stratakv;

/** What carries requests to the device. */
public enum IoBackend {
    /** io_uring, or threads where it is refused. */
    AUTO,
    /** io_uring. */
    URING,
    /** Threads that block. */
    BLOCKING
}
