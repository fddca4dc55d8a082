package io.stratakv;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Arrays;
import java.util.Objects;
import java.util.Optional;

/**
 * A value with what belongs to it.
 *
 * @param value the value; it is yours, a copy of what the store holds
 * @param flags 32 bits that the store keeps and does not look at
 * @param version grows with every write of the key; 0 of what a transaction has written itself. Compare with {@link Long#compareUnsigned}
 * @param expiry when the record expires, to the millisecond; empty if never
 */
public record Record(byte[] value, int flags, long version, Optional<Instant> expiry) {
    /**
     * A record.
     *
     * @throws NullPointerException {@code value} or {@code expiry} is null
     */
    public Record {
        Objects.requireNonNull(value, "value");
        Objects.requireNonNull(expiry, "expiry");
    }

    /**
     * The value as text in UTF-8.
     *
     * @return the text
     */
    public String text() {
        return new String(value, StandardCharsets.UTF_8);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Record that && Arrays.equals(value, that.value) && flags == that.flags
                && version == that.version && expiry.equals(that.expiry);
    }

    @Override
    public int hashCode() {
        return Objects.hash(Arrays.hashCode(value), flags, version, expiry);
    }

    @Override
    public String toString() {
        return "Record[value=" + value.length + " bytes, flags=" + flags + ", version="
                + Long.toUnsignedString(version) + ", expiry=" + expiry.map(Instant::toString).orElse("never") + "]";
    }
}
