package io.stratakv.streams;

import java.util.Objects;
import java.util.function.Predicate;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.ReadOnlySessionStore;
import org.apache.kafka.streams.state.SessionStore;

/** A store of sessions. A session lies in the segment of its end. */
class SessionBytesStore extends SegmentedStore implements SessionStore<Bytes, byte[]> {
    SessionBytesStore(String name, long retentionMs) {
        super(name, retentionMs);
    }

    @Override
    public ReadOnlySessionStore<Bytes, byte[]> readOnly(IsolationLevel level) {
        return isCommittedOnly(level) ? view(new SessionBytesStore(name(), retentionPeriod())) : this;
    }

    /** Aggregates begin with headers. */
    static final class WithHeaders extends SessionBytesStore implements HeadersBytesStore {
        WithHeaders(String name, long retentionMs) {
            super(name, retentionMs);
        }
    }

    @Override
    public void put(Windowed<Bytes> session, byte[] aggregate) {
        long end = session.window().end();
        if (accepts(end)) {
            state().put(keyOf(session), aggregate);
        } else {
            refuseExpired();
        }
        updatePosition();
    }

    private byte[] keyOf(Windowed<Bytes> session) {
        long end = session.window().end();
        return RecordKeys.session(segmentOf(end), session.key().get(), end, session.window().start());
    }

    @Override
    public void remove(Windowed<Bytes> session) {
        state().put(keyOf(session), null);
        updatePosition();
    }

    @Override
    public byte[] fetchSession(Bytes key, long start, long end) {
        Objects.requireNonNull(key, "key cannot be null");
        return end < oldestLive() ? null : state().get(RecordKeys.session(segmentOf(end), key.get(), end, start));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes key) {
        return sessions(Objects.requireNonNull(key, "key cannot be null"), key, 0, Long.MAX_VALUE, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes key) {
        return sessions(Objects.requireNonNull(key, "key cannot be null"), key, 0, Long.MAX_VALUE, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes from, Bytes to) {
        return sessions(from, to, 0, Long.MAX_VALUE, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes from, Bytes to) {
        return sessions(from, to, 0, Long.MAX_VALUE, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(Bytes key, long earliestEnd, long latestStart) {
        return sessions(Objects.requireNonNull(key, "key cannot be null"), key, earliestEnd, latestStart, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
            Bytes key, long earliestEnd, long latestStart) {
        return sessions(Objects.requireNonNull(key, "key cannot be null"), key, earliestEnd, latestStart, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(
            Bytes from, Bytes to, long earliestEnd, long latestStart) {
        return sessions(from, to, earliestEnd, latestStart, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
            Bytes from, Bytes to, long earliestEnd, long latestStart) {
        return sessions(from, to, earliestEnd, latestStart, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(long earliestEnd, long latestEnd) {
        Wanted wanted = new Wanted(null, null, earliestEnd, latestEnd);
        return records(wanted, true, SessionBytesStore::windowed, made -> shows(
                wanted, made, end -> end <= latestEnd));
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> sessions(
            Bytes from, Bytes to, long earliestEnd, long latestStart, boolean isForward) {
        if (from != null && to != null && from.compareTo(to) > 0) {
            return MappedIterator.empty();
        }
        Wanted wanted = new Wanted(
                from == null ? null : from.get(), to == null ? null : to.get(), earliestEnd, Long.MAX_VALUE);
        return records(wanted, isForward, SessionBytesStore::windowed, made ->
                RecordKeys.startOfSession(made) <= latestStart && shows(wanted, made, end -> true));
    }

    private boolean shows(Wanted wanted, byte[] made, Predicate<Long> ends) {
        long end = RecordKeys.endOfSession(made);
        return end >= Math.max(wanted.timeFrom(), oldestLive()) && ends.test(end)
                && wanted.hasKey(RecordKeys.keyOfSession(made));
    }

    private static Windowed<Bytes> windowed(byte[] made) {
        return new Windowed<>(
                Bytes.wrap(RecordKeys.keyOfSession(made)),
                new SessionWindow(RecordKeys.startOfSession(made), RecordKeys.endOfSession(made)));
    }

    @Override
    void restore(ConsumerRecord<byte[], byte[]> record) {
        long end = RecordKeys.endInChangelogOfSession(record.key());
        if (accepts(end)) {
            state().load(RecordKeys.inSegment(segmentOf(end), record.key()), record.value());
        }
    }
}
