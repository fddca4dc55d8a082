package io.stratakv.streams;

import io.stratakv.Collection;
import io.stratakv.Record;
import io.stratakv.Scan;
import io.stratakv.ScanOptions;
import io.stratakv.Snapshot;
import io.stratakv.StrataKvException;
import io.stratakv.WriteBatch;
import java.io.File;
import java.util.AbstractMap.SimpleImmutableEntry;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.errors.TaskCorruptedException;
import org.apache.kafka.streams.query.Position;

/**
 * The records of one task's store: a collection of the shared store, and the writes since the last
 * commit in a buffer over it. A commit writes the buffer and the changelog offsets as one batch.
 *
 * <p>The task's thread opens it, processes and commits. Kafka's state updater restores and commits
 * before that. Other threads may read: interactive queries do. Damage that those meet is flagged,
 * and the task's next call raises it: Kafka heals tasks, and not queries.
 */
final class TaskState implements StateView, AutoCloseable {
    private static final int COUNTED_EXACTLY_MAX = 1000;

    private final File directory;
    private final SharedStore shared;
    private final Failure failure;
    private final ReentrantReadWriteLock commits = new ReentrantReadWriteLock();
    private final Set<MergedScan> scans = ConcurrentHashMap.newKeySet();
    private final List<byte[][]> droppedRanges = new ArrayList<>();
    private final String name;
    private final Collection collection;
    private final StoreFacts facts;
    private final Position position;
    private final CommitCounts counts = new CommitCounts();

    private final StateView committed = new CommittedRecords();

    private volatile WriteBuffer buffer = new WriteBuffer();
    /** What is being restored, in the order of the changelog, and what it counts for. */
    private List<Map.Entry<byte[], byte[]>> loaded = new ArrayList<>();
    private long loadedBytes;
    /** The committed records, while others were written before their commit; under `commits`. */
    private SharedSnapshot lastCommit;
    /** The thread that processes: who opened the state, or wrote last. */
    private volatile Thread owner = Thread.currentThread();
    /** A thread that restores or commits just now. */
    private volatile Thread updater;
    private volatile boolean isOpened;
    private volatile boolean isRestoring;
    /** Whether the task may have made outputs of what it has read, since it was restored. */
    private volatile boolean hasProcessed;
    /** What a query or a restore has met, for which Kafka is to be given an exception. */
    private volatile StrataKvException met;
    private volatile long streamTime;

    /** Whether an error is damage, which a restore heals, and what was done meanwhile. */
    enum Damage {
        NONE,
        IN_QUERY,
        WHILE_RESTORING,
        WHILE_PROCESSING
    }

    /** Makes an exception of an error of the store; of damage one that lets Kafka restore. */
    interface Failure {
        RuntimeException exception(String what, StrataKvException error, Damage damage);
    }

    private TaskState(
            File directory, SharedStore shared, SharedStore.Named named, StoreFacts facts, Failure failure) {
        this.directory = directory;
        this.shared = shared;
        this.name = named.name();
        this.collection = named.collection();
        this.facts = facts;
        this.failure = failure;
        this.position = facts.position().copy();
        this.streamTime = facts.streamTime();
    }

    /** Opens the state of the store that lies in a directory, and the shared store if need be. */
    static TaskState open(File storeDirectory, StoreSettings settings, Failure failure) {
        SharedStore shared = SharedStore.acquire(storeDirectory.getParentFile().getParentFile(), settings);
        try {
            SharedStore.Named named = shared.collectionOf(storeDirectory);
            StoreFacts facts = factsOf(named, shared, storeDirectory);
            if (facts == null) {
                // It is damaged: Kafka restores what it does not find.
                named = shared.replace(storeDirectory, named);
                facts = new StoreFacts();
            } else if (facts.isPartial()) {
                // The process died between two parts of a commit that was too long for one batch.
                named = shared.replace(storeDirectory, named);
                facts = StoreFacts.read(named.collection());
            }
            return new TaskState(storeDirectory, shared, named, facts, failure);
        } catch (StrataKvException error) {
            try {
                throw failed("cannot open", error, storeDirectory, null, shared, failure, true);
            } finally {
                shared.release();
            }
        } catch (RuntimeException error) {
            shared.release();
            throw error;
        }
    }

    /** What the store knows of itself; null if that is damaged, which is noted. */
    private static StoreFacts factsOf(SharedStore.Named named, SharedStore shared, File directory) {
        try {
            return StoreFacts.read(named.collection());
        } catch (StrataKvException error) {
            if (error.kind() != StrataKvException.Kind.CORRUPT) {
                throw error;
            }
            shared.noteDamage(directory, named.name());
            return null;
        }
    }

    /** What to throw for an error. Of damage it is noted that the store is to begin anew. */
    private static RuntimeException failed(
            String what, StrataKvException error, File directory, String collection, SharedStore shared,
            Failure failure, boolean isRestoring) {
        boolean isDamage = error.kind() == StrataKvException.Kind.CORRUPT
                || (error.kind() == StrataKvException.Kind.FULL && shared.isGivenUpForDamage());
        if (!isDamage) {
            return failure.exception(what, error, Damage.NONE);
        }
        shared.noteDamage(directory, collection);
        return failure.exception(what, error, isRestoring ? Damage.WHILE_RESTORING : Damage.WHILE_PROCESSING);
    }

    private RuntimeException failed(String what, StrataKvException error) {
        if (!isOwnThread()) {
            return failedQuery(what, error);
        }
        boolean isBeforeProcessing = !isOpened || isRestoring || !hasProcessed;
        RuntimeException thrown = failed(what, error, directory, name, shared, failure, isBeforeProcessing);
        if (isRestoring) {
            met = error;
        }
        return thrown;
    }

    /** Neither the task's name nor the store's note of damage is a query's: the task still runs. */
    private RuntimeException failedQuery(String what, StrataKvException error) {
        boolean isDamage = error.kind() == StrataKvException.Kind.CORRUPT;
        if (isDamage) {
            met = error;
        }
        return failure.exception(what, error, isDamage ? Damage.IN_QUERY : Damage.NONE);
    }

    private boolean isOwnThread() {
        Thread current = Thread.currentThread();
        return current == owner || current == updater;
    }

    /** A call of the processor, or of a query. Raises what queries and restores have met. */
    private void beginCall() {
        if (!isOpened || isRestoring || !isOwnThread()) {
            return;
        }
        hasProcessed |= Thread.currentThread() != updater;
        raise();
    }

    private void raise() {
        StrataKvException error = met;
        if (error != null) {
            throw failed("a query or a restore has met damage", error);
        }
    }

    /** Damage is taken for damage while opening until this is called. */
    void endOpening() {
        isOpened = true;
    }

    /**
     * Restores records. Kafka takes damage as an answer to a commit, or to a read of the processor,
     * but not here: it is kept for them, and what is restored until then is of no use.
     */
    void restoring(Runnable records) {
        Thread before = updater;
        updater = Thread.currentThread();
        isRestoring = true;
        hasProcessed = false;
        try {
            if (met == null) {
                records.run();
            }
        } catch (TaskCorruptedException error) {
            if (met == null) {
                throw error;
            }
        } finally {
            // Of a restore that failed: Kafka restores it again.
            forgetLoaded();
            isRestoring = false;
            updater = before;
        }
        if (met != null) {
            forgetBuffer();
        }
    }

    private void forgetBuffer() {
        shared.bufferedBytes().addAndGet(-buffer.bytes());
        buffer = new WriteBuffer();
        forgetLoaded();
    }

    private void forgetLoaded() {
        shared.bufferedBytes().addAndGet(-loadedBytes);
        loaded = new ArrayList<>();
        loadedBytes = 0;
    }

    /** Does the work of a commit, which the state updater's thread may do too. */
    void committing(Runnable work) {
        Thread before = updater;
        updater = Thread.currentThread();
        try {
            raise();
            work.run();
        } finally {
            updater = before;
        }
    }

    Long committedOffset(TopicPartition partition) {
        return facts.offset(partition);
    }

    /**
     * The committed records alone. As with Kafka's own stores, all of them if state is not
     * transactional: then nobody says when they are committed.
     */
    StateView committed() {
        return shared.settings().isTransactional() ? committed : this;
    }

    @Override
    public Position position() {
        return position;
    }

    @Override
    public long streamTime() {
        return streamTime;
    }

    @Override
    public void observe(long time) {
        streamTime = Math.max(streamTime, time);
    }

    CommitCounts counts() {
        return counts;
    }

    SharedStore shared() {
        return shared;
    }

    long bufferedBytes() {
        return buffer.bytes();
    }

    @Override
    public byte[] get(byte[] key) {
        beginCall();
        byte[] buffered = buffer.get(key);
        if (buffered != null) {
            return buffered == WriteBuffer.DELETED ? null : buffered;
        }
        try {
            Optional<Record> record = collection.get(key);
            return record.isPresent() ? record.get().value() : null;
        } catch (StrataKvException error) {
            throw failed("cannot read a record", error);
        }
    }

    @Override
    public void put(byte[] key, byte[] value) {
        owner = Thread.currentThread();
        beginCall();
        write(key, value);
    }

    @Override
    public void restore(byte[] key, byte[] value) {
        write(key, value);
    }

    @Override
    public void load(byte[] key, byte[] value) {
        if (met != null) {
            return;
        }
        loaded.add(new SimpleImmutableEntry<>(key, value));
        long bytes = WriteBuffer.sizeOf(key, value);
        loadedBytes += bytes;
        long total = shared.bufferedBytes().addAndGet(bytes);
        if (shared.isFull(buffer.bytes() + loadedBytes, total)) {
            writeLoaded();
        }
    }

    /** What was restored at once is there: written if that is worth a batch, else buffered for the commit. */
    void endLoad() {
        if (loadedBytes >= StoreSettings.WORTH_WRITING_BYTES) {
            writeLoaded();
        } else {
            bufferLoaded();
        }
    }

    private void writeLoaded() {
        writeBuffer(false, false, batch -> {});
    }

    /** Before another change: the later one of a key counts. */
    private void bufferLoaded() {
        List<Map.Entry<byte[], byte[]>> changes = loaded;
        if (!changes.isEmpty()) {
            forgetLoaded();
            changes.forEach(change -> write(change.getKey(), change.getValue()));
        }
    }

    @Override
    public void drop(byte[] key) {
        write(key, null);
    }

    private void write(byte[] key, byte[] value) {
        if (isRestoring && met != null) {
            return;
        }
        bufferLoaded();
        long total = shared.bufferedBytes().addAndGet(buffer.put(key, value));
        if (shared.isFull(buffer.bytes(), total)) {
            relieve();
        }
    }

    /**
     * Writes the buffer before its commit, as memory ends. What a crash leaves then is not what was
     * committed. That matters only with exactly-once processing, and not while restoring, which the
     * changelog repeats: then the state is marked, and dropped by the next opening.
     */
    private void relieve() {
        boolean isPart = shared.settings().isExactlyOnce() && !isRestoring;
        boolean isHidden = shared.settings().isTransactional() && !isRestoring;
        writeBuffer(isHidden, false, batch -> {
            if (isPart) {
                facts.beginPart(batch, collection);
            }
        });
        if (isPart) {
            facts.begunPart();
        }
        counts.spilled();
    }

    @Override
    public void dropRange(byte[] from, byte[] to) {
        bufferLoaded();
        shared.bufferedBytes().addAndGet(-buffer.removeRange(from, to));
        droppedRanges.add(new byte[][] {from, to});
    }

    /** Writes what is buffered, and the offsets it belongs to, as one batch. */
    void commit(Map<TopicPartition, Long> offsets) {
        if (buffer.isEmpty() && lastCommit == null && facts.isAt(offsets, position, streamTime)) {
            return;
        }
        Position reached = position.copy();
        long time = streamTime;
        writeBuffer(false, true, batch -> facts.write(batch, collection, offsets, reached, time));
        facts.written(offsets, reached, time);
        dropRanges();
    }

    private interface Addition {
        void addTo(WriteBatch batch);
    }

    /**
     * Writes the buffer, and what was loaded behind it: a batch takes the later change of a key. If
     * that `isHidden`, committed reads go on without what is written. If it is no commit, and the
     * store was given up, a restore goes on without its records to the commit.
     */
    private void writeBuffer(boolean isHidden, boolean isCommit, Addition facts) {
        long bytes = buffer.bytes();
        long begun = System.nanoTime();
        try (WriteBatch batch = new WriteBatch()) {
            batch.putAll(collection, buffer::changes);
            batch.putAll(collection, loaded);
            facts.addTo(batch);
            commits.writeLock().lock();
            try {
                if (isHidden && lastCommit == null) {
                    lastCommit = new SharedSnapshot(shared.store().snapshot());
                }
                shared.store().write(batch);
                buffer = new WriteBuffer();
                if (!isHidden) {
                    forgetLastCommit();
                }
            } finally {
                commits.writeLock().unlock();
            }
        } catch (StrataKvException error) {
            RuntimeException failed = failed("cannot commit", error);
            if (!isCommit && isRestoring && shared.isGivenUp()) {
                forgetBuffer();
                return;
            }
            throw failed;
        }
        forgetLoaded();
        shared.bufferedBytes().addAndGet(-bytes);
        counts.committed(bytes, System.nanoTime() - begun);
    }

    private void forgetLastCommit() {
        if (lastCommit != null) {
            lastCommit.release();
            lastCommit = null;
        }
    }

    private void dropRanges() {
        try {
            for (byte[][] range : droppedRanges) {
                collection.deleteRange(range[0], range[1]);
            }
            droppedRanges.clear();
        } catch (StrataKvException error) {
            throw failed("cannot drop expired records", error);
        }
    }

    private static ScanOptions options(byte[] from, byte[] to, boolean isForward) {
        ScanOptions options = ScanOptions.all();
        options = from == null ? options : options.from(from);
        options = to == null ? options : options.to(to);
        return isForward ? options : options.reverse();
    }

    @Override
    public MergedScan scan(byte[] from, byte[] to, boolean isForward) {
        beginCall();
        ScanOptions options = options(from, to, isForward);
        try {
            MergedScan scan = isOwnThread()
                    ? ownScan(from, to, options, isForward)
                    : snapshotScan(from, to, options, isForward);
            scans.add(scan);
            return scan;
        } catch (StrataKvException error) {
            throw failed("cannot scan", error);
        }
    }

    /** For the task's thread, which alone writes: it needs no snapshot. */
    private MergedScan ownScan(byte[] from, byte[] to, ScanOptions options, boolean isForward) {
        Scan committed = collection.scan(options);
        return merged(ordered(buffer.range(from, to), isForward), committed, () -> {}, isForward);
    }

    /** For queries of other threads: one moment, between two commits. */
    private MergedScan snapshotScan(byte[] from, byte[] to, ScanOptions options, boolean isForward) {
        commits.readLock().lock();
        try {
            NavigableMap<byte[], byte[]> writes = buffer.copyOfRange(from, to);
            Snapshot snapshot = shared.store().snapshot();
            Scan committed = snapshot.scan(collection, options);
            return merged(ordered(writes, isForward), committed, snapshot, isForward);
        } finally {
            commits.readLock().unlock();
        }
    }

    private MergedScan merged(
            Iterator<Map.Entry<byte[], byte[]>> writes, Scan records, AutoCloseable snapshot, boolean isForward) {
        return new MergedScan(
                writes, records, snapshot, isForward, error -> failed("cannot scan", error), scans::remove);
    }

    private static Iterator<Map.Entry<byte[], byte[]>> ordered(
            NavigableMap<byte[], byte[]> writes, boolean isForward) {
        return (isForward ? writes : writes.descendingMap()).entrySet().iterator();
    }

    /** Exact while few records are buffered. */
    @Override
    public long count() {
        beginCall();
        try {
            long count = collection.count() - facts.count();
            NavigableMap<byte[], byte[]> writes = buffer.range(null, null);
            boolean looksUp = writes.size() <= COUNTED_EXACTLY_MAX;
            for (Map.Entry<byte[], byte[]> write : writes.entrySet()) {
                boolean isThere = looksUp && collection.get(write.getKey()).isPresent();
                boolean isDelete = write.getValue() == WriteBuffer.DELETED;
                if (isDelete && isThere) {
                    count--;
                } else if (!isDelete && !isThere) {
                    count++;
                }
            }
            return Math.max(0, count);
        } catch (StrataKvException error) {
            throw failed("cannot count", error);
        }
    }

    /** Forgets what was not committed: Kafka commits before an orderly end. */
    @Override
    public void close() {
        shared.bufferedBytes().addAndGet(-buffer.bytes());
        List.copyOf(scans).forEach(MergedScan::close);
        commits.writeLock().lock();
        try {
            forgetLastCommit();
        } finally {
            commits.writeLock().unlock();
        }
        collection.close();
        shared.release();
    }

    /** What the last commit has left, for queries: buffered writes are not looked at. */
    private final class CommittedRecords implements StateView {
        @Override
        public byte[] get(byte[] key) {
            commits.readLock().lock();
            try {
                Optional<Record> record = lastCommit == null ? collection.get(key) : lastCommit.get(collection, key);
                return record.isPresent() ? record.get().value() : null;
            } catch (StrataKvException error) {
                throw failed("cannot read a record", error);
            } finally {
                commits.readLock().unlock();
            }
        }

        @Override
        public MergedScan scan(byte[] from, byte[] to, boolean isForward) {
            ScanOptions options = options(from, to, isForward);
            commits.readLock().lock();
            try {
                MergedScan scan = merged(options, isForward);
                scans.add(scan);
                return scan;
            } catch (StrataKvException error) {
                throw failed("cannot scan", error);
            } finally {
                commits.readLock().unlock();
            }
        }

        private MergedScan merged(ScanOptions options, boolean isForward) {
            if (lastCommit == null) {
                Snapshot snapshot = shared.store().snapshot();
                return TaskState.this.merged(Collections.emptyIterator(), snapshot.scan(collection, options), snapshot, isForward);
            }
            SharedSnapshot.Use use = lastCommit.scan(collection, options);
            return TaskState.this.merged(Collections.emptyIterator(), use.scan(), use.end(), isForward);
        }

        @Override
        public long count() {
            try {
                return Math.max(0, collection.count() - facts.count());
            } catch (StrataKvException error) {
                throw failed("cannot count", error);
            }
        }

        @Override
        public Position position() {
            return facts.position();
        }

        @Override
        public long streamTime() {
            return facts.streamTime();
        }

        @Override
        public void observe(long time) {
            throw refused();
        }

        @Override
        public void put(byte[] key, byte[] value) {
            throw refused();
        }

        @Override
        public void restore(byte[] key, byte[] value) {
            throw refused();
        }

        @Override
        public void load(byte[] key, byte[] value) {
            throw refused();
        }

        @Override
        public void drop(byte[] key) {
            throw refused();
        }

        @Override
        public void dropRange(byte[] from, byte[] to) {
            throw refused();
        }

        private UnsupportedOperationException refused() {
            return new UnsupportedOperationException(
                    "this is a view of committed records, for queries: write to the store that the processor has");
        }
    }
}
