package io.stratakv.streams;

import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Objects;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.ResultOrder;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.VersionedRecordIterator;

/**
 * A store of the versions of keys. A key's latest version lies apart from its older ones, so that a
 * read of the latest is a read of one record. Each superseded version, and each delete, has an entry
 * in an index by the time from which nobody may ask for it; commits drop what is due there.
 */
final class VersionedBytesKeyValueStore extends PersistentStore implements VersionedKeyValueStore<Bytes, byte[]> {
    private static final int DROPS_MAX = 10_000;

    private final long historyMs;

    VersionedBytesKeyValueStore(String name, long historyMs) {
        super(name);
        this.historyMs = historyMs;
    }

    @Override
    public VersionedKeyValueStore<Bytes, byte[]> readOnly(IsolationLevel level) {
        return shownAt(level);
    }

    private VersionedBytesKeyValueStore shownAt(IsolationLevel level) {
        return isCommittedOnly(level) ? view(new VersionedBytesKeyValueStore(name(), historyMs)) : this;
    }

    /** A version as it is stored: its time, or of an older one the time it was superseded. */
    private record Version(long from, long to, byte[] value) {
        static final long LATEST = -1;

        byte[] stored() {
            ByteBuffer stored = ByteBuffer.allocate(Long.BYTES + 1 + (value == null ? 0 : value.length));
            stored.putLong(to == LATEST ? from : to).put((byte) (value == null ? 0 : 1));
            return (value == null ? stored : stored.put(value)).array();
        }

        static Version latest(byte[] stored) {
            return new Version(ByteBuffer.wrap(stored).getLong(), LATEST, valueIn(stored));
        }

        static Version older(byte[] key, byte[] stored) {
            return new Version(RecordKeys.timeOfVersion(key), ByteBuffer.wrap(stored).getLong(), valueIn(stored));
        }

        private static byte[] valueIn(byte[] stored) {
            ByteBuffer read = ByteBuffer.wrap(stored).position(Long.BYTES);
            if (read.get() == 0) {
                return null;
            }
            byte[] value = new byte[read.remaining()];
            read.get(value);
            return value;
        }

        VersionedRecord<byte[]> record() {
            if (value == null) {
                return null;
            }
            return to == LATEST
                    ? new VersionedRecord<>(value, from)
                    : new VersionedRecord<>(value, from, to);
        }
    }

    /** Where writes go: those of the task, or of its changelog. */
    private interface Writes {
        void put(byte[] key, byte[] value);
    }

    @Override
    public long put(Bytes key, byte[] value, long timestamp) {
        Objects.requireNonNull(key, "key cannot be null");
        if (timestamp < state().streamTime() - historyMs) {
            refuseExpired();
            return PUT_RETURN_CODE_NOT_PUT;
        }
        long validTo = write(state()::put, key.get(), value, timestamp);
        updatePosition();
        return validTo;
    }

    private long write(Writes writes, byte[] key, byte[] value, long time) {
        state().observe(time);
        byte[] latestKey = RecordKeys.tagged(RecordKeys.DATA, key);
        byte[] stored = state().get(latestKey);
        Version latest = stored == null ? null : Version.latest(stored);
        if (latest != null && time < latest.from()) {
            return writeOlder(writes, RecordKeys.versions(key), new Version(time, latest.from(), value));
        }
        if (latest != null && latest.from() < time) {
            Version superseded = new Version(latest.from(), time, latest.value());
            writeVersion(writes, RecordKeys.versions(key), superseded);
        }
        writes.put(latestKey, new Version(time, Version.LATEST, value).stored());
        if (value == null) {
            writes.put(RecordKeys.expiry(time, latestKey), new byte[0]);
        }
        return PUT_RETURN_CODE_VALID_TO_UNDEFINED;
    }

    private void writeVersion(Writes writes, byte[] versions, Version version) {
        byte[] key = RecordKeys.version(versions, version.from());
        writes.put(key, version.stored());
        writes.put(RecordKeys.expiry(version.to(), key), new byte[0]);
    }

    /** Puts a version between older ones; `to` of it is the latest one's time so far. */
    private long writeOlder(Writes writes, byte[] versions, Version late) {
        Version before = first(RecordKeys.version(versions, Long.MIN_VALUE), late.from(), versions, false);
        Version after = first(null, late.from(), versions, true);
        long to = after == null ? late.to() : after.from();
        if (before != null && before.from() == late.from()) {
            to = before.to();
        } else if (before != null && before.to() > late.from()) {
            to = before.to();
            byte[] key = RecordKeys.version(versions, before.from());
            writes.put(RecordKeys.expiry(before.to(), key), null);
            writeVersion(writes, versions, new Version(before.from(), late.from(), before.value()));
        }
        writeVersion(writes, versions, new Version(late.from(), to, late.value()));
        return to;
    }

    /** The last version at or before a time, or the first one after it. */
    private Version first(byte[] least, long time, byte[] versions, boolean isAfter) {
        byte[] at = RecordKeys.after(RecordKeys.version(versions, time));
        byte[] from = isAfter ? at : least;
        byte[] to = isAfter ? RecordKeys.after(RecordKeys.version(versions, Long.MAX_VALUE)) : at;
        try (MergedScan scan = state().scan(from, to, isAfter)) {
            MergedScan.Item item = scan.peek();
            return item == null ? null : Version.older(item.key(), item.value());
        }
    }

    @Override
    public VersionedRecord<byte[]> delete(Bytes key, long timestamp) {
        Objects.requireNonNull(key, "key cannot be null");
        if (timestamp < state().streamTime() - historyMs) {
            refuseExpired();
            return null;
        }
        VersionedRecord<byte[]> before = get(key, timestamp);
        put(key, null, timestamp);
        return before;
    }

    private Version latest(Bytes key) {
        Objects.requireNonNull(key, "key cannot be null");
        byte[] stored = state().get(RecordKeys.tagged(RecordKeys.DATA, key.get()));
        return stored == null ? null : Version.latest(stored);
    }

    @Override
    public VersionedRecord<byte[]> get(Bytes key) {
        Version latest = latest(key);
        return latest == null ? null : latest.record();
    }

    @Override
    public VersionedRecord<byte[]> get(Bytes key, long asOfTimestamp) {
        Version latest = latest(key);
        if (latest != null && latest.from() <= asOfTimestamp) {
            return latest.record();
        }
        if (latest == null || asOfTimestamp < state().streamTime() - historyMs) {
            return null;
        }
        byte[] versions = RecordKeys.versions(key.get());
        Version found = first(RecordKeys.version(versions, Long.MIN_VALUE), asOfTimestamp, versions, false);
        return found == null || found.to() <= asOfTimestamp ? null : found.record();
    }

    /** Kafka answers this one for its own store only. */
    @Override
    @SuppressWarnings("unchecked")
    public <R> QueryResult<R> query(Query<R> query, PositionBound bound, QueryConfig config) {
        if (!(query instanceof MultiVersionedKeyQuery<?, ?> asked)) {
            return super.query(query, bound, config);
        }
        Position position = positionAt(config.getIsolationLevel());
        if (!KafkaInternals.isUpTo(bound, position, context())) {
            return QueryResult.notUpToBound(position, bound, context().taskId().partition());
        }
        long from = asked.fromTime().map(Instant::toEpochMilli).orElse(0L);
        long to = asked.toTime().map(Instant::toEpochMilli).orElse(Long.MAX_VALUE);
        List<VersionedRecord<byte[]>> found =
                shownAt(config.getIsolationLevel()).versions((Bytes) asked.key(), from, to, asked.resultOrder());
        QueryResult<R> result = (QueryResult<R>) QueryResult.forResult(new Versions(found.iterator()));
        result.setPosition(position);
        return result;
    }

    /** Versions that were read already. */
    private record Versions(Iterator<VersionedRecord<byte[]>> found) implements VersionedRecordIterator<byte[]> {
        @Override
        public boolean hasNext() {
            return found.hasNext();
        }

        @Override
        public VersionedRecord<byte[]> next() {
            return found.next();
        }

        @Override
        public void close() {
            // Nothing is open.
        }
    }

    /** The versions of a key that were valid at some time between two, deletes left out. */
    List<VersionedRecord<byte[]>> versions(Bytes key, long from, long to, ResultOrder order) {
        List<VersionedRecord<byte[]>> found = new ArrayList<>();
        byte[] versions = RecordKeys.versions(key.get());
        boolean isHistory = to >= state().streamTime() - historyMs;
        if (isHistory) {
            byte[] first = RecordKeys.version(versions, Long.MIN_VALUE);
            byte[] behind = RecordKeys.after(RecordKeys.version(versions, to));
            try (MergedScan scan = state().scan(first, behind, true)) {
                while (scan.peek() != null) {
                    MergedScan.Item item = scan.next();
                    Version version = Version.older(item.key(), item.value());
                    if (version.value() != null && version.to() > from) {
                        found.add(version.record());
                    }
                }
            }
        }
        Version latest = latest(key);
        if (latest != null && latest.value() != null && latest.from() <= to) {
            found.add(latest.record());
        }
        if (order != ResultOrder.ASCENDING) {
            Collections.reverse(found);
        }
        return found;
    }

    /** Drops what is out of the history, a bounded number of versions at a time. */
    @Override
    void prepareCommit() {
        byte[] from = RecordKeys.expiries(Long.MIN_VALUE);
        byte[] to = RecordKeys.expiries(Math.max(0, state().streamTime() - historyMs));
        List<byte[]> due = new ArrayList<>();
        try (MergedScan scan = state().scan(from, to, true)) {
            while (due.size() < DROPS_MAX && scan.peek() != null) {
                due.add(scan.next().key());
            }
        }
        for (byte[] expiry : due) {
            byte[] key = RecordKeys.expiring(expiry);
            byte[] stored = state().get(key);
            if (stored != null && isDue(key, stored)) {
                state().drop(key);
            }
            state().drop(expiry);
        }
    }

    /** A latest version is due only if it is a delete, and still the one that the index means. */
    private boolean isDue(byte[] key, byte[] stored) {
        long end = state().streamTime() - historyMs;
        if (key[0] == RecordKeys.VERSION) {
            return Version.older(key, stored).to() < end;
        }
        Version latest = Version.latest(stored);
        return latest.value() == null && latest.from() < end;
    }

    @Override
    void restore(ConsumerRecord<byte[], byte[]> record) {
        if (record.timestamp() >= state().streamTime() - historyMs) {
            write(state()::restore, record.key(), record.value(), record.timestamp());
        }
    }
}
