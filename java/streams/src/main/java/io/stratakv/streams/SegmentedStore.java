package io.stratakv.streams;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import java.util.function.Predicate;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.internals.WithRetentionPeriod;

/**
 * Windows and sessions: records with a time, which expire. They lie in segments of time, and a
 * segment is dropped as a whole once all in it has expired. Until then readers do not see it.
 */
abstract class SegmentedStore extends PersistentStore implements WithRetentionPeriod {
    private static final long SEGMENT_INTERVAL_MS_MIN = 60_000;
    /** Length of a sequence number, or of the start of a session, behind the time. */
    private static final byte[] LAST = {-1, -1, -1, -1, -1, -1, -1, -1};

    private final long retentionMs;
    private final long segmentMs;
    /** Segments below this one are dropped. */
    private long firstSegment;
    private volatile long lastSegment = -1;

    SegmentedStore(String name, long retentionMs) {
        super(name);
        this.retentionMs = retentionMs;
        this.segmentMs = segmentMs(retentionMs);
    }

    /** How long a segment is: as in Kafka's own stores, whose cache asks the supplier. */
    static long segmentMs(long retentionMs) {
        return Math.max(retentionMs / 2, SEGMENT_INTERVAL_MS_MIN);
    }

    @Override
    void prepare() {
        try (MergedScan last = state().scan(dataFrom(), dataTo(), false)) {
            MergedScan.Item item = last.peek();
            if (item != null) {
                lastSegment = Math.max(lastSegment, RecordKeys.segmentOf(item.key()));
            }
        }
        firstSegment = segmentOf(oldestLive());
    }

    private static byte[] dataFrom() {
        return new byte[] {RecordKeys.DATA};
    }

    private static byte[] dataTo() {
        return new byte[] {RecordKeys.DATA + 1};
    }

    /** Kafka leaves out of a restore what has expired by this. */
    @Override
    public long retentionPeriod() {
        return retentionMs;
    }

    final long segmentOf(long time) {
        return Math.max(0, time) / segmentMs;
    }

    /** Records of earlier times have expired. */
    final long oldestLive() {
        return state().streamTime() - retentionMs + 1;
    }

    /** Moves stream time on, and drops what has expired by that. False: the record itself has. */
    final boolean accepts(long time) {
        state().observe(time);
        long first = segmentOf(oldestLive());
        if (first > firstSegment) {
            state().dropRange(RecordKeys.segment(firstSegment), RecordKeys.segment(first));
            firstSegment = first;
        }
        if (time < oldestLive()) {
            return false;
        }
        lastSegment = Math.max(lastSegment, segmentOf(time));
        return true;
    }

    /** Which records of a store are wanted; null keys are no bounds. */
    record Wanted(byte[] keyFrom, byte[] keyTo, long timeFrom, long timeTo) {
        boolean isOneKey() {
            return keyFrom != null && Arrays.equals(keyFrom, keyTo);
        }

        boolean hasKey(byte[] key) {
            return (keyFrom == null || Arrays.compareUnsigned(keyFrom, key) <= 0)
                    && (keyTo == null || Arrays.compareUnsigned(key, keyTo) <= 0);
        }
    }

    /** The records of a range, segment by segment; `shows` decides about each. */
    final <K> KeyValueIterator<K, byte[]> records(
            Wanted wanted, boolean isForward, Function<byte[], K> keys, Predicate<byte[]> shows) {
        long first = segmentOf(Math.max(wanted.timeFrom(), oldestLive()));
        long last = Math.min(((SegmentedStore) source()).lastSegment, segmentOf(wanted.timeTo()));
        if (wanted.timeTo() < 0 || first > last) {
            return MappedIterator.empty();
        }
        if (wanted.keyFrom() == null && wanted.keyTo() == null) {
            Function<Long, KeyValueIterator<K, byte[]>> open = segment -> {
                MergedScan scan = state().scan(RecordKeys.segment(first), RecordKeys.segment(last + 1), isForward);
                return new MappedIterator<>(scan, keys, shows);
            };
            return new SegmentsIterator<>(this::isOpen, open, first, first, isForward);
        }
        Function<Long, KeyValueIterator<K, byte[]>> open = segment -> {
            MergedScan scan = state().scan(lower(segment, wanted), upper(segment, wanted), isForward);
            return new MappedIterator<>(scan, keys, shows);
        };
        return new SegmentsIterator<>(this::isOpen, open, first, last, isForward);
    }

    private static byte[] lower(long segment, Wanted wanted) {
        byte[] key = wanted.keyFrom() == null ? new byte[0] : wanted.keyFrom();
        byte[] begin = RecordKeys.segmentAndKey(segment, key);
        if (!wanted.isOneKey()) {
            return begin;
        }
        long time = Math.max(0, wanted.timeFrom());
        return ByteBuffer.allocate(begin.length + Long.BYTES).put(begin).putLong(time).array();
    }

    /**
     * Behind all records of keys up to `keyTo`. A key that is the beginning of `keyTo` may come
     * later than `keyTo` itself, as its time follows where `keyTo` goes on.
     */
    private static byte[] upper(long segment, Wanted wanted) {
        if (wanted.keyTo() == null) {
            return RecordKeys.segment(segment + 1);
        }
        byte[] key = wanted.keyTo();
        byte[] time = ByteBuffer.allocate(Long.BYTES).putLong(wanted.timeTo()).array();
        byte[] most = joined(key, key.length, time);
        for (int len = 0; len < key.length && !wanted.isOneKey(); len++) {
            if (Byte.compareUnsigned(key[len], time[0]) <= 0) {
                byte[] shorter = joined(key, len, time);
                most = Arrays.compareUnsigned(shorter, most) > 0 ? shorter : most;
            }
        }
        return RecordKeys.segmentAndKey(segment, most);
    }

    private static byte[] joined(byte[] key, int len, byte[] time) {
        return ByteBuffer.allocate(len + time.length + LAST.length + 1)
                .put(key, 0, len).put(time).put(LAST).array();
    }

    /**
     * Opens the scan of a segment when the one before is at its end. When the store is closed it is
     * at its end: so iterators of Kafka's own windows and sessions do it.
     */
    private static final class SegmentsIterator<K> implements KeyValueIterator<K, byte[]> {
        private final BooleanSupplier isStoreOpen;
        private final Iterator<Long> segments;
        private final Function<Long, KeyValueIterator<K, byte[]>> open;
        private KeyValueIterator<K, byte[]> current = MappedIterator.empty();
        private boolean isClosed;

        SegmentsIterator(
                BooleanSupplier isStoreOpen, Function<Long, KeyValueIterator<K, byte[]>> open, long first, long last,
                boolean isForward) {
            this.isStoreOpen = isStoreOpen;
            this.open = open;
            this.segments = new Iterator<>() {
                private long next = isForward ? first : last;

                @Override
                public boolean hasNext() {
                    return next >= first && next <= last;
                }

                @Override
                public Long next() {
                    long taken = next;
                    next += isForward ? 1 : -1;
                    return taken;
                }
            };
        }

        @Override
        public boolean hasNext() {
            if (isClosed) {
                throw new IllegalStateException("the iterator is closed");
            }
            try {
                return hasFound();
            } catch (IllegalStateException | InvalidStateStoreException error) {
                if (isStoreOpen.getAsBoolean()) {
                    throw error;
                }
                return false;
            }
        }

        private boolean hasFound() {
            while (!current.hasNext() && segments.hasNext()) {
                current.close();
                current = open.apply(segments.next());
            }
            return current.hasNext();
        }

        @Override
        public K peekNextKey() {
            if (!hasNext()) {
                throw new NoSuchElementException("the iterator is at its end");
            }
            return current.peekNextKey();
        }

        @Override
        public org.apache.kafka.streams.KeyValue<K, byte[]> next() {
            if (!hasNext()) {
                throw new NoSuchElementException("the iterator is at its end");
            }
            return current.next();
        }

        @Override
        public void close() {
            isClosed = true;
            current.close();
        }
    }
}
