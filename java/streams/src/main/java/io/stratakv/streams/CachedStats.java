package io.stratakv.streams;

import io.stratakv.Store;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** The native store's counters, asked at most once a second however many metrics read them. */
final class CachedStats {
    private static final long FRESH_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final Store store;
    private Map<String, Long> stats = Map.of();
    private long askedNanos;

    CachedStats(Store store) {
        this.store = store;
    }

    /** A counter; -1 if the store has none of that name, or is closed. */
    synchronized long get(String name) {
        long now = System.nanoTime();
        if (stats.isEmpty() || now - askedNanos > FRESH_NANOS) {
            try {
                stats = store.stats();
            } catch (RuntimeException closed) {
                return -1;
            }
            askedNanos = now;
        }
        return stats.getOrDefault(name, -1L);
    }
}
