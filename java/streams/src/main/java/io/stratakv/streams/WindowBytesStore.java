package io.stratakv.streams;

import java.util.Objects;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.TimeWindow;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.ReadOnlyWindowStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** A store of windows. Subclasses tell Kafka in which form values are. */
class WindowBytesStore extends SegmentedStore implements WindowStore<Bytes, byte[]> {
    private final Suppliers.Times times;
    private final long windowMs;
    private final boolean keepsDuplicates;
    private int sequence;

    WindowBytesStore(String name, Suppliers.Times times) {
        super(name, times.retentionMs());
        this.times = times;
        this.windowMs = times.windowMs();
        this.keepsDuplicates = times.keepsDuplicates();
    }

    /** Values begin with a timestamp. */
    static final class Timestamped extends WindowBytesStore implements TimestampedBytesStore {
        Timestamped(String name, Suppliers.Times times) {
            super(name, times);
        }
    }

    /** Values begin with headers and a timestamp. */
    static final class WithHeaders extends WindowBytesStore implements HeadersBytesStore {
        WithHeaders(String name, Suppliers.Times times) {
            super(name, times);
        }
    }

    @Override
    public ReadOnlyWindowStore<Bytes, byte[]> readOnly(IsolationLevel level) {
        if (!isCommittedOnly(level)) {
            return this;
        }
        WindowBytesStore view = view(new WindowBytesStore(name(), times));
        view.sequence = sequence;
        return view;
    }

    @Override
    public void put(Bytes key, byte[] value, long windowStart) {
        Objects.requireNonNull(key, "key cannot be null");
        if (!accepts(windowStart)) {
            refuseExpired();
        } else if (value != null || !keepsDuplicates) {
            // Of a store with duplicates a delete names none of them.
            if (keepsDuplicates) {
                sequence = (sequence + 1) & Integer.MAX_VALUE;
            }
            state().put(RecordKeys.window(segmentOf(windowStart), key.get(), windowStart, sequence), value);
        }
        updatePosition();
    }

    @Override
    public byte[] fetch(Bytes key, long windowStart) {
        Objects.requireNonNull(key, "key cannot be null");
        if (windowStart < Math.max(0, oldestLive())) {
            return null;
        }
        return state().get(RecordKeys.window(segmentOf(windowStart), key.get(), windowStart, sequence));
    }

    @Override
    public WindowStoreIterator<byte[]> fetch(Bytes key, long timeFrom, long timeTo) {
        return times(key, timeFrom, timeTo, true);
    }

    @Override
    public WindowStoreIterator<byte[]> backwardFetch(Bytes key, long timeFrom, long timeTo) {
        return times(key, timeFrom, timeTo, false);
    }

    private WindowStoreIterator<byte[]> times(Bytes key, long timeFrom, long timeTo, boolean isForward) {
        Objects.requireNonNull(key, "key cannot be null");
        Wanted wanted = new Wanted(key.get(), key.get(), timeFrom, timeTo);
        return new TimesIterator(records(wanted, isForward, RecordKeys::timeOfWindow, made -> shows(wanted, made)));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes keyFrom, Bytes keyTo, long timeFrom, long timeTo) {
        return windows(keyFrom, keyTo, timeFrom, timeTo, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(
            Bytes keyFrom, Bytes keyTo, long timeFrom, long timeTo) {
        return windows(keyFrom, keyTo, timeFrom, timeTo, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetchAll(long timeFrom, long timeTo) {
        return windows(null, null, timeFrom, timeTo, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetchAll(long timeFrom, long timeTo) {
        return windows(null, null, timeFrom, timeTo, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> all() {
        return windows(null, null, 0, Long.MAX_VALUE, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardAll() {
        return windows(null, null, 0, Long.MAX_VALUE, false);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> windows(
            Bytes keyFrom, Bytes keyTo, long timeFrom, long timeTo, boolean isForward) {
        if (keyFrom != null && keyTo != null && keyFrom.compareTo(keyTo) > 0) {
            return MappedIterator.empty();
        }
        Wanted wanted = new Wanted(
                keyFrom == null ? null : keyFrom.get(), keyTo == null ? null : keyTo.get(), timeFrom, timeTo);
        return records(wanted, isForward, this::windowed, made -> shows(wanted, made));
    }

    private boolean shows(Wanted wanted, byte[] made) {
        long time = RecordKeys.timeOfWindow(made);
        return time >= Math.max(wanted.timeFrom(), oldestLive()) && time <= wanted.timeTo()
                && wanted.hasKey(RecordKeys.keyOfWindow(made));
    }

    private Windowed<Bytes> windowed(byte[] made) {
        long start = RecordKeys.timeOfWindow(made);
        long end = start + windowMs;
        return new Windowed<>(
                Bytes.wrap(RecordKeys.keyOfWindow(made)), new TimeWindow(start, end < 0 ? Long.MAX_VALUE : end));
    }

    @Override
    void restore(ConsumerRecord<byte[], byte[]> record) {
        long start = RecordKeys.timeInChangelogOfWindow(record.key());
        if (accepts(start)) {
            state().load(RecordKeys.inSegment(segmentOf(start), record.key()), record.value());
        }
    }

    /** Values by the start of their window. */
    private record TimesIterator(KeyValueIterator<Long, byte[]> records) implements WindowStoreIterator<byte[]> {
        @Override
        public void close() {
            records.close();
        }

        @Override
        public Long peekNextKey() {
            return records.peekNextKey();
        }

        @Override
        public boolean hasNext() {
            return records.hasNext();
        }

        @Override
        public KeyValue<Long, byte[]> next() {
            return records.next();
        }
    }
}
