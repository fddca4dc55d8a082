package io.stratakv;

import java.util.Objects;
import java.util.Optional;

/** All collections of a store as they were at one moment. One thread at a time may use it. It is to be closed: what writers replace keeps its space until then. */
public final class Snapshot implements AutoCloseable {
    private final Handle handle;
    private final Store store;

    Snapshot(Handle handle, Store store) {
        this.handle = handle;
        this.store = store;
    }

    /**
     * Reads a record as it was.
     *
     * @param collection whose
     * @param key the key
     * @return the record, if there was one
     */
    public Optional<Record> get(Collection collection, byte[] key) {
        Objects.requireNonNull(collection, "collection");
        Objects.requireNonNull(key, "key");
        try (Handle.Use own = handle.use(); Handle.Use use = collection.use()) {
            long[] record = new long[Outcome.RECORD_WORDS];
            long[] message = new long[1];
            int status = Calls.stratakv_snapshot_get(
                    own.address(), use.address(), key, key.length, record, message);
            return Outcome.takeRecord(status, record, message);
        }
    }

    /**
     * Records as they were, in the order of their keys. To be closed, before the snapshot: behind that it gives only what it has read ahead, then an error.
     *
     * @param collection whose
     * @param options which, and how
     * @return the scan
     */
    public Scan scan(Collection collection, ScanOptions options) {
        Objects.requireNonNull(collection, "collection");
        Objects.requireNonNull(options, "options");
        try (Handle.Use own = handle.use(); Handle.Use use = collection.use()) {
            return Scan.begin(collection, use, options, own.address());
        }
    }

    /**
     * Whose snapshot it is.
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
