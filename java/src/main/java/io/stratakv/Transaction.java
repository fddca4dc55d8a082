package io.stratakv;

import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * Reads and writes that take effect as one, or not at all. It sees its own writes; nobody else does before the commit. What it reads by key and at the ends of lists still holds when it commits, or it is
 * refused; scans are not part of it. It holds no lock. One thread at a time may use it. {@link Store#transact} begins again where there is a conflict.
 */
public final class Transaction implements AutoCloseable {
    private final Handle handle;
    private final Store store;

    Transaction(Handle handle, Store store) {
        this.handle = handle;
        this.store = store;
    }

    /**
     * Reads a record, with this transaction's own changes. Costs a read the first time.
     *
     * @param collection whose
     * @param key the key
     * @return the record, if there is one
     */
    public Optional<Record> get(Collection collection, byte[] key) {
        Objects.requireNonNull(collection, "collection");
        Objects.requireNonNull(key, "key");
        try (Handle.Use own = handle.use(); Handle.Use use = collection.use()) {
            long[] record = new long[Outcome.RECORD_WORDS];
            long[] message = new long[1];
            int status = Calls.stratakv_transaction_get(
                    own.address(), use.address(), key, key.length, record, message);
            return Outcome.takeRecord(status, record, message);
        }
    }

    /**
     * Sets a record. Costs nothing before the commit.
     *
     * @param collection whose
     * @param key the key
     * @param value the value
     */
    public void put(Collection collection, byte[] key, byte[] value) {
        put(collection, key, value, PutOptions.defaults());
    }

    /**
     * Sets a record, under a condition if one is given; then it is read.
     *
     * @param collection whose
     * @param key the key
     * @param value the value
     * @param options flags, expiry and condition
     * @return whether the condition holds; if not, this changes nothing
     */
    public boolean put(Collection collection, byte[] key, byte[] value, PutOptions options) {
        Objects.requireNonNull(collection, "collection");
        Objects.requireNonNull(key, "key");
        Objects.requireNonNull(value, "value");
        long[] words = Objects.requireNonNull(options, "options").words();
        try (Handle.Use own = handle.use(); Handle.Use use = collection.use()) {
            long[] message = new long[1];
            int status = Calls.stratakv_transaction_put(
                    own.address(), use.address(), key, key.length, value, value.length, words, message);
            return Outcome.isOk(status, message);
        }
    }

    /**
     * Removes a record, if there is one.
     *
     * @param collection whose
     * @param key the key
     */
    public void delete(Collection collection, byte[] key) {
        Objects.requireNonNull(collection, "collection");
        Objects.requireNonNull(key, "key");
        try (Handle.Use own = handle.use(); Handle.Use use = collection.use()) {
            long[] message = new long[1];
            Outcome.check(
                    Calls.stratakv_transaction_delete(own.address(), use.address(), key, key.length, message), message);
        }
    }

    /**
     * Puts an element at an end of a list.
     *
     * @param list the list
     * @param end where
     * @param value the element
     */
    public void push(StoredList list, End end, byte[] value) {
        Objects.requireNonNull(list, "list");
        Objects.requireNonNull(end, "end");
        Objects.requireNonNull(value, "value");
        try (Handle.Use own = handle.use(); Handle.Use use = list.use()) {
            long[] message = new long[1];
            int status = Calls.stratakv_transaction_push(
                    own.address(), use.address(), end.code, value, value.length, message);
            Outcome.check(status, message);
        }
    }

    /**
     * Takes the element at an end of a list.
     *
     * @param list the list
     * @param end where
     * @return the element; empty if the list is
     */
    public Optional<byte[]> pop(StoredList list, End end) {
        return element(list, end, Calls::stratakv_transaction_pop);
    }

    /**
     * Reads the element at an end of a list.
     *
     * @param list the list
     * @param end where
     * @return the element; empty if the list is
     */
    public Optional<byte[]> peek(StoredList list, End end) {
        return element(list, end, Calls::stratakv_transaction_peek);
    }

    /** A call that gives an element. */
    private interface AtEnd {
        int call(long transaction, long list, int end, long[] value, long[] message);
    }

    private Optional<byte[]> element(StoredList list, End end, AtEnd call) {
        Objects.requireNonNull(list, "list");
        Objects.requireNonNull(end, "end");
        try (Handle.Use own = handle.use(); Handle.Use use = list.use()) {
            long[] value = new long[Outcome.RECORD_WORDS];
            long[] message = new long[1];
            int status = call.call(own.address(), use.address(), end.code, value, message);
            return Outcome.takeValue(status, value, message);
        }
    }

    /**
     * Commits, and closes the transaction whatever comes of it. Costs a batch; nothing if it has read one key at most and written none.
     *
     * @return the version of what was written, 0 if nothing was; empty if what it read has been changed since: nothing was done, begin again
     */
    public OptionalLong commit() {
        try (Handle.Use own = handle.use()) {
            handle.spend();
            long[] version = new long[1];
            long[] message = new long[1];
            int status = Calls.stratakv_transaction_commit(own.address(), version, message);
            return Collection.written(status, version, message);
        }
    }

    /**
     * Whose transaction it is.
     *
     * @return the store
     */
    public Store store() {
        return store;
    }

    /** Gives it up, unless it was committed: nothing was done. */
    @Override
    public void close() {
        handle.run();
    }
}
