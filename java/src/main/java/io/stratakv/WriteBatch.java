package io.stratakv;

import java.util.Map;
import java.util.Objects;

/** Changes that {@link Store#write} makes as one. One thread at a time may use it. Bad keys and values are told when it is written. */
public final class WriteBatch implements AutoCloseable {
    private final Handle handle;

    /** An empty batch. */
    public WriteBatch() {
        Library.bind();
        handle = Handle.exclusive("batch", null, Calls.stratakv_batch_new(), Calls::stratakv_batch_free);
        handle.freeAfter(this);
    }

    Handle.Use use() {
        return handle.use();
    }

    /**
     * Sets a record.
     *
     * @param collection whose
     * @param key the key
     * @param value the value
     * @return this
     */
    public WriteBatch put(Collection collection, byte[] key, byte[] value) {
        return put(collection, key, value, PutOptions.defaults());
    }

    /**
     * Sets a record, under a condition if one is given.
     *
     * @param collection whose
     * @param key the key
     * @param value the value
     * @param options flags, expiry and condition
     * @return this
     */
    public WriteBatch put(Collection collection, byte[] key, byte[] value, PutOptions options) {
        Objects.requireNonNull(collection, "collection");
        Objects.requireNonNull(key, "key");
        Objects.requireNonNull(value, "value");
        long[] words = Objects.requireNonNull(options, "options").words();
        try (Handle.Use own = use(); Handle.Use use = collection.use()) {
            long[] message = new long[1];
            int status = Calls.stratakv_batch_put(
                    own.address(), use.address(), key, key.length, value, value.length, words, message);
            Outcome.check(status, message);
            return this;
        }
    }

    /**
     * Sets records, or removes those whose value is null. It costs a fraction of as many calls of {@link #put(Collection, byte[], byte[])}. If {@code changes} throws, some of what it
     * gave is in the batch: do not write that. It must not close the store.
     *
     * @param collection whose
     * @param changes keys and values; null stands for a delete
     * @return this
     */
    public WriteBatch putAll(Collection collection, Iterable<? extends Map.Entry<byte[], byte[]>> changes) {
        Objects.requireNonNull(collection, "collection");
        Objects.requireNonNull(changes, "changes");
        try (Handle.Use own = use(); Handle.Use use = collection.use(); Scratch scratch = Scratch.take()) {
            int len = 0;
            for (Map.Entry<byte[], byte[]> change : changes) {
                byte[] key = Objects.requireNonNull(change.getKey(), "one of the keys");
                byte[] value = change.getValue();
                int end = Page.add(scratch, len, key, value);
                if (end < 0) {
                    addPage(own, use, scratch, len);
                    len = 0;
                    end = Page.add(scratch, 0, key, value);
                }
                if (end < 0) {
                    addOne(collection, key, value);
                } else {
                    len = end;
                }
            }
            addPage(own, use, scratch, len);
            return this;
        }
    }

    private static void addPage(Handle.Use own, Handle.Use use, Scratch scratch, int len) {
        int status = Calls.stratakv_batch_page(own.address(), use.address(), scratch.room(), len, scratch.message());
        Outcome.check(status, scratch.takeMessage());
    }

    /** One that is too long for a page. */
    private void addOne(Collection collection, byte[] key, byte[] value) {
        if (value == null) {
            delete(collection, key);
        } else {
            put(collection, key, value);
        }
    }

    /**
     * Removes a record, if there is one.
     *
     * @param collection whose
     * @param key the key
     * @return this
     */
    public WriteBatch delete(Collection collection, byte[] key) {
        return delete(collection, key, Expect.any());
    }

    /**
     * Removes a record under a condition.
     *
     * @param collection whose
     * @param key the key
     * @param expect the condition
     * @return this
     */
    public WriteBatch delete(Collection collection, byte[] key, Expect expect) {
        Objects.requireNonNull(collection, "collection");
        Objects.requireNonNull(key, "key");
        Objects.requireNonNull(expect, "expect");
        try (Handle.Use own = use(); Handle.Use use = collection.use()) {
            long[] message = new long[1];
            int status = Calls.stratakv_batch_delete(
                    own.address(), use.address(), key, key.length, expect.code, expect.version, message);
            Outcome.check(status, message);
            return this;
        }
    }

    /**
     * Puts an element at an end of a list.
     *
     * @param list the list
     * @param end where
     * @param value the element
     * @return this
     */
    public WriteBatch push(StoredList list, End end, byte[] value) {
        Objects.requireNonNull(list, "list");
        Objects.requireNonNull(end, "end");
        Objects.requireNonNull(value, "value");
        try (Handle.Use own = use(); Handle.Use use = list.use()) {
            long[] message = new long[1];
            int status = Calls.stratakv_batch_push(
                    own.address(), use.address(), end.code, value, value.length, message);
            Outcome.check(status, message);
            return this;
        }
    }

    /**
     * Number of changes.
     *
     * @return how many
     */
    public long count() {
        try (Handle.Use own = use()) {
            return Calls.stratakv_batch_count(own.address());
        }
    }

    @Override
    public void close() {
        handle.run();
    }
}
