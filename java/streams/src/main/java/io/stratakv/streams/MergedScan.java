package io.stratakv.streams;

import io.stratakv.Entry;
import io.stratakv.Scan;
import io.stratakv.StrataKvException;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * Buffered writes over committed records, in one order: where both have a key, the write counts.
 * {@link TaskState} makes it. One thread uses it; the store's end may close it from another.
 */
final class MergedScan implements AutoCloseable {
    /** A record. */
    record Item(byte[] key, byte[] value) {}

    private final Iterator<Map.Entry<byte[], byte[]>> writes;
    private final Scan committed;
    /** Closed after the scan: the snapshot it reads, if there is one. */
    private final AutoCloseable snapshot;
    private final boolean isForward;
    private final Function<StrataKvException, RuntimeException> failed;
    private final Consumer<MergedScan> ended;

    private Map.Entry<byte[], byte[]> nextWrite;
    private Entry nextCommitted;
    private Item next;
    private final AtomicBoolean isClosed = new AtomicBoolean();

    MergedScan(
            Iterator<Map.Entry<byte[], byte[]>> writes, Scan committed, AutoCloseable snapshot, boolean isForward,
            Function<StrataKvException, RuntimeException> failed, Consumer<MergedScan> ended) {
        this.writes = writes;
        this.committed = committed;
        this.snapshot = snapshot;
        this.isForward = isForward;
        this.failed = failed;
        this.ended = ended;
    }

    /** The next record without taking it; null at the end. */
    Item peek() {
        if (isClosed.get()) {
            throw new IllegalStateException("the iterator is closed: its store was closed, or close() was called");
        }
        try {
            if (next == null) {
                next = fetch();
            }
            return next;
        } catch (StrataKvException error) {
            throw failed.apply(error);
        }
    }

    /** The next record. */
    Item next() {
        Item taken = peek();
        if (taken == null) {
            throw new NoSuchElementException("the iterator is at its end");
        }
        next = null;
        return taken;
    }

    private Item fetch() {
        while (true) {
            if (nextWrite == null && writes.hasNext()) {
                nextWrite = writes.next();
            }
            if (nextCommitted == null && committed.hasNext()) {
                nextCommitted = committed.next();
            }
            if (nextWrite == null && nextCommitted == null) {
                return null;
            }
            int order = order();
            if (order > 0) {
                Item item = new Item(nextCommitted.key(), nextCommitted.record().value());
                nextCommitted = null;
                return item;
            }
            Map.Entry<byte[], byte[]> write = nextWrite;
            nextWrite = null;
            if (order == 0) {
                nextCommitted = null;
            }
            if (write.getValue() != WriteBuffer.DELETED) {
                return new Item(write.getKey(), write.getValue());
            }
        }
    }

    /** Below 0: the buffered write comes first. 0: both have the key. */
    private int order() {
        if (nextWrite == null) {
            return 1;
        }
        if (nextCommitted == null) {
            return -1;
        }
        int order = Arrays.compareUnsigned(nextWrite.getKey(), nextCommitted.key());
        return isForward ? order : -order;
    }

    @Override
    public void close() {
        // The store's end and the reader may both close it: the snapshot is released once.
        if (!isClosed.compareAndSet(false, true)) {
            return;
        }
        committed.close();
        try {
            snapshot.close();
        } catch (RuntimeException error) {
            throw error;
        } catch (Exception error) {
            throw new IllegalStateException(error);
        } finally {
            ended.accept(this);
        }
    }
}
