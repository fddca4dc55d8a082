package io.stratakv;

import java.time.Instant;
import java.util.Optional;

/** Instants as the store keeps them: milliseconds since 1970, where 0 is never. */
final class Times {
    private Times() {}

    static Optional<Instant> expiry(long milliseconds) {
        return milliseconds == 0 ? Optional.empty() : Optional.of(Instant.ofEpochMilli(milliseconds));
    }

    /** An instant that was before 1970 is as gone as the first millisecond after it. */
    static long milliseconds(Instant instant) {
        if (instant.equals(Instant.MAX)) {
            return 0;
        }
        Instant latest = Instant.ofEpochMilli(Long.MAX_VALUE);
        return instant.isAfter(latest) ? Long.MAX_VALUE : Math.max(1, earliest(instant).toEpochMilli());
    }

    private static Instant earliest(Instant instant) {
        return instant.isBefore(Instant.EPOCH) ? Instant.EPOCH : instant;
    }
}
