package io.stratakv.streams;

import java.util.AbstractMap.SimpleImmutableEntry;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;

/**
 * Writes of one task's store since its last commit, in the order of their keys. The task's thread
 * writes; any thread reads. It never touches the native store.
 */
final class WriteBuffer {
    /** Stands for a delete; told from values by its identity. */
    static final byte[] DELETED = new byte[0];

    /** What an entry costs on the heap beside its bytes: two arrays, a node, an index level. */
    private static final int ENTRY_OVERHEAD_BYTES = 96;

    /** What a change counts for, on the heap and in batches: less than this no record of the store takes. */
    static long sizeOf(byte[] key, byte[] value) {
        return key.length + ENTRY_OVERHEAD_BYTES + (value == null ? 0 : value.length);
    }

    private final ConcurrentNavigableMap<byte[], byte[]> writes = new ConcurrentSkipListMap<>(Arrays::compareUnsigned);
    private volatile long bytes;

    /** The buffered value, {@link #DELETED}, or null: ask the committed records. */
    byte[] get(byte[] key) {
        return writes.get(key);
    }

    /** Buffers a write; a null value deletes. Returns by how many bytes the buffer grew. */
    long put(byte[] key, byte[] value) {
        byte[] before = writes.put(key, value == null ? DELETED : value);
        long grown = value == null ? 0 : value.length;
        grown += before == null ? key.length + ENTRY_OVERHEAD_BYTES : -before.length;
        bytes += grown;
        return grown;
    }

    /** Drops the writes of a key range. Returns by how many bytes the buffer shrank. */
    long removeRange(byte[] from, byte[] to) {
        NavigableMap<byte[], byte[]> range = range(from, to);
        long removed = 0;
        for (Map.Entry<byte[], byte[]> write : range.entrySet()) {
            removed += sizeOf(write.getKey(), write.getValue());
        }
        range.clear();
        bytes -= removed;
        return removed;
    }

    /** Writes of keys from one up to another; null is no bound. A live view. */
    NavigableMap<byte[], byte[]> range(byte[] from, byte[] to) {
        if (from != null && to != null) {
            return Arrays.compareUnsigned(from, to) < 0 ? writes.subMap(from, true, to, false) : new TreeMap<>();
        }
        if (from != null) {
            return writes.tailMap(from, true);
        }
        return to == null ? writes : writes.headMap(to, false);
    }

    /** The same as a copy, which later writes do not change. */
    NavigableMap<byte[], byte[]> copyOfRange(byte[] from, byte[] to) {
        NavigableMap<byte[], byte[]> copy = new TreeMap<>(Arrays::compareUnsigned);
        copy.putAll(range(from, to));
        return copy;
    }

    /** All writes; a value that is null deletes. */
    Iterator<Map.Entry<byte[], byte[]>> changes() {
        Iterator<Map.Entry<byte[], byte[]>> all = writes.entrySet().iterator();
        return new Iterator<>() {
            @Override
            public boolean hasNext() {
                return all.hasNext();
            }

            @Override
            public Map.Entry<byte[], byte[]> next() {
                Map.Entry<byte[], byte[]> write = all.next();
                return write.getValue() == DELETED ? new SimpleImmutableEntry<>(write.getKey(), null) : write;
            }
        };
    }

    long bytes() {
        return bytes;
    }

    boolean isEmpty() {
        return writes.isEmpty();
    }
}
