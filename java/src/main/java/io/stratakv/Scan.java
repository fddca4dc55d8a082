package io.stratakv;

import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * Records in the order of their keys. It reads ahead a bounded number of them, and is to be closed. One thread at a time may use it; it goes over its records once.
 *
 * <pre>{@code
 * try (Scan scan = store.scan(ScanOptions.prefix(prefix))) {
 *     for (Entry entry : scan) {
 *         System.out.println(entry.keyText() + " = " + entry.record().text());
 *     }
 * }
 * }</pre>
 */
public final class Scan implements Iterator<Entry>, Iterable<Entry>, AutoCloseable {
    private final Handle handle;
    /** Keeps the store from being closed as unreachable. */
    private final Store store;

    /** Records that have been fetched and not given yet. */
    private ArrayDeque<Entry> page = new ArrayDeque<>(0);
    /** What is to be thrown behind those: of a record that cannot be read, or by an order. */
    private Throwable failure;
    /** Of the scan as a whole, met with its first page. */
    private StrataKvException refusal;
    private boolean isAtEnd;

    private Scan(Handle handle, Store store) {
        this.handle = handle;
        this.store = store;
    }

    /** Begins a scan; of a snapshot if its address is not 0. */
    static Scan begin(Collection collection, Handle.Use use, ScanOptions options, long snapshot) {
        try (Scratch scratch = Scratch.take()) {
            // What an order throws at a bound is thrown here, and what it throws at a record later.
            int optionsAt = collection.store().hasOrders() ? -1 : options.write(scratch);
            if (optionsAt >= 0) {
                return begin(collection.store(), use, scratch, optionsAt, snapshot);
            }
        }
        try (Pieces pieces = options.pieces()) {
            long[] begun = new long[1];
            long[] message = new long[1];
            int status = Calls.stratakv_scan_new(use.address(), options.words(pieces), snapshot, begun, message);
            Outcome.check(status, message);
            return of(collection.store(), begun[0]);
        }
    }

    /** Begins one with its first page. Of a short one there is nothing native then. */
    private static Scan begin(Store store, Handle.Use use, Scratch scratch, int optionsAt, long snapshot) {
        int status = Calls.stratakv_scan_begin(
                use.address(), scratch.room() + optionsAt, snapshot, scratch.room(), optionsAt, scratch.len(),
                scratch.count(), scratch.record(), scratch.message());
        long address = scratch.takeAddress();
        Scan scan = of(store, address);
        try {
            if (Outcome.isOk(status, scratch.takeMessage()) && scratch.takeCount() > 0) {
                scan.page = Page.entries(scratch, scratch.takeCount());
            }
        } catch (StrataKvException error) {
            if (address == 0) {
                throw error;
            }
            scan.keep(error);
        }
        return scan;
    }

    /** What the first page failed with is thrown when it is asked for. */
    private void keep(StrataKvException error) {
        if (isOfOneRecord(error)) {
            failure = error;
        } else {
            refusal = error;
        }
    }

    /** One by its address; 0: all of it has been fetched. */
    private static Scan of(Store store, long address) {
        if (address == 0) {
            Scan scan = new Scan(Handle.exclusive("scan", store.handle(), 0, nothing -> {}), store);
            scan.isAtEnd = true;
            return scan;
        }
        Handle handle = Handle.exclusive("scan", store.handle(), address, Calls::stratakv_scan_free);
        Scan scan = new Scan(handle, store);
        handle.freeAfter(scan);
        return scan;
    }

    /**
     * Whether {@link #next} has something to say: a record, or that one cannot be read.
     *
     * @return whether
     * @throws StrataKvException the scan as a whole is refused or has failed, as one of keys that are in no order is; it is at its end then
     */
    @Override
    public boolean hasNext() {
        return !page.isEmpty() && !handle.isClosed() || isNext();
    }

    /**
     * The next record.
     *
     * @return its key and itself
     * @throws NoSuchElementException there is none
     * @throws StrataKvException it cannot be read, and the scan goes on behind it; or as {@link #hasNext}
     */
    @Override
    public Entry next() {
        if (!hasNext()) {
            throw new NoSuchElementException("the scan is at its end");
        }
        Entry taken = page.poll();
        if (taken == null) {
            Throwable thrown = failure;
            failure = null;
            throw Callbacks.rethrow(thrown);
        }
        return taken;
    }

    private boolean isNext() {
        try (Handle.Use use = handle.use()) {
            return isNext(use);
        }
    }

    private boolean isNext(Handle.Use use) {
        if (refusal != null) {
            StrataKvException thrown = refusal;
            refusal = null;
            isAtEnd = true;
            throw thrown;
        }
        if (page.isEmpty() && failure == null && !isAtEnd) {
            try {
                page = fetch(use);
                isAtEnd = page.isEmpty();
            } catch (StrataKvException error) {
                if (!isOfOneRecord(error)) {
                    // Asked again, it would be refused again: a caller that catches the error and
                    // goes on would never end.
                    isAtEnd = true;
                    throw error;
                }
                failure = error;
            }
        }
        return !page.isEmpty() || failure != null;
    }

    private static boolean isOfOneRecord(StrataKvException error) {
        return error.kind() == StrataKvException.Kind.CORRUPT || error.kind() == StrataKvException.Kind.IO;
    }

    private ArrayDeque<Entry> fetch(Handle.Use use) {
        try (Scratch scratch = Scratch.take()) {
            int status = fetchPage(use, scratch, Scratch.ROOM);
            if (status == Outcome.OK && scratch.takeCount() > 0) {
                ArrayDeque<Entry> entries = Page.entries(scratch, scratch.takeCount());
                keepThrown(use, scratch);
                return entries;
            }
            return Outcome.isOk(status, scratch.takeMessage()) ? fetchOne(use) : new ArrayDeque<>(0);
        }
    }

    private static int fetchPage(Handle.Use use, Scratch scratch, int roomLen) {
        return Calls.stratakv_scan_page(
                use.address(), scratch.room(), roomLen, scratch.len(), scratch.count(), scratch.message());
    }

    /** An order has thrown at the record behind a page: that is told behind it, and the record's own failure is not. */
    private void keepThrown(Handle.Use use, Scratch scratch) {
        failure = Callbacks.takeThrown();
        if (failure != null) {
            int status = fetchPage(use, scratch, 0);
            if (scratch.takeMessage()[0] != 0) {
                Outcome.takeText(scratch.takeMessage()[0]);
            }
            assert status != Outcome.OK : "the native scan holds the failure";
        }
    }

    /** One that is too long for a page. */
    private static ArrayDeque<Entry> fetchOne(Handle.Use use) {
        ArrayDeque<Entry> one = new ArrayDeque<>(1);
        long[] key = new long[1];
        long[] keyLen = new long[1];
        long[] record = new long[Outcome.RECORD_WORDS];
        long[] message = new long[1];
        if (!Outcome.isOk(Calls.stratakv_scan_next(use.address(), key, keyLen, record, message), message)) {
            return one;
        }
        one.add(new Entry(Outcome.bytes(key[0], keyLen[0]), Outcome.record(record, 0).orElseThrow()));
        return one;
    }

    /**
     * Itself, for a loop: the records that are left.
     *
     * @return this
     */
    @Override
    public Iterator<Entry> iterator() {
        return this;
    }

    /**
     * The records that are left, as a stream that closes the scan when it is closed.
     *
     * @return the stream
     */
    public Stream<Entry> stream() {
        int traits = Spliterator.ORDERED | Spliterator.NONNULL;
        return StreamSupport.stream(Spliterators.spliteratorUnknownSize(this, traits), false).onClose(this::close);
    }

    /**
     * Whose records it goes over.
     *
     * @return the store
     */
    public Store store() {
        return store;
    }

    @Override
    public void close() {
        handle.run();
    }
}
