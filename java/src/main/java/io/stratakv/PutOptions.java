package io.stratakv;

import java.time.Instant;
import java.util.Objects;
import java.util.Optional;

/**
 * How to write one record: {@code PutOptions.defaults().withFlags(7).withExpect(Expect.absent())}.
 *
 * @param flags 32 bits that the store keeps and does not look at
 * @param expiry when the record expires, to the millisecond; empty if never
 * @param expect under which condition it is written
 */
public record PutOptions(int flags, Optional<Instant> expiry, Expect expect) {
    private static final PutOptions DEFAULTS = new PutOptions(0, Optional.empty(), Expect.any());

    /**
     * Options.
     *
     * @throws NullPointerException {@code expiry} or {@code expect} is null
     */
    public PutOptions {
        Objects.requireNonNull(expiry, "expiry");
        Objects.requireNonNull(expect, "expect");
    }

    /**
     * No flags, no expiry, no condition.
     *
     * @return the options
     */
    public static PutOptions defaults() {
        return DEFAULTS;
    }

    /**
     * With other flags.
     *
     * @param flags 32 bits
     * @return new options
     */
    public PutOptions withFlags(int flags) {
        return new PutOptions(flags, expiry, expect);
    }

    /**
     * With an expiry. {@link Instant#MAX} is never; one that is over makes a record that nobody sees.
     *
     * @param expiry the instant
     * @return new options
     */
    public PutOptions withExpiry(Instant expiry) {
        return new PutOptions(flags, Optional.of(Objects.requireNonNull(expiry, "expiry")), expect);
    }

    /**
     * With another condition.
     *
     * @param expect the condition
     * @return new options
     */
    public PutOptions withExpect(Expect expect) {
        return new PutOptions(flags, expiry, expect);
    }

    /** As a {@code stratakv_put_options}. */
    long[] words() {
        return new long[] {expiryMs(), expect.version, flags & 0xFFFF_FFFFL | (long) expect.code << 32};
    }

    long expiryMs() {
        return expiry.map(Times::milliseconds).orElse(0L);
    }
}
