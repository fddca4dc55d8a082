package io.stratakv;

import java.time.Instant;
import java.util.Objects;

/** What {@link Collection#fetchUpdate} makes of a record. */
public final class Next {
    private static final Next KEEP = new Next(0, null, PutOptions.defaults());
    private static final Next REMOVE = new Next(2, null, PutOptions.defaults());
    private static final int REPLACE = 1;

    final int action;
    /** Null but of a replacement. */
    final byte[] value;
    final PutOptions options;

    private Next(int action, byte[] value, PutOptions options) {
        this.action = action;
        this.value = value;
        this.options = options;
    }

    /**
     * Leave it as it is.
     *
     * @return the decision
     */
    public static Next keep() {
        return KEEP;
    }

    /**
     * Remove it.
     *
     * @return the decision
     */
    public static Next remove() {
        return REMOVE;
    }

    /**
     * Set it, without flags or expiry.
     *
     * @param value the value
     * @return the decision
     */
    public static Next put(byte[] value) {
        return new Next(REPLACE, Objects.requireNonNull(value, "value"), PutOptions.defaults());
    }

    /**
     * With flags.
     *
     * @param flags 32 bits that the store keeps and does not look at
     * @return another decision
     */
    public Next withFlags(int flags) {
        return new Next(action, value, options.withFlags(flags));
    }

    /**
     * With an expiry.
     *
     * @param expiry when it expires
     * @return another decision
     */
    public Next withExpiry(Instant expiry) {
        return new Next(action, value, options.withExpiry(expiry));
    }
}
