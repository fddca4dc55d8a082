package io.stratakv;

import com.sun.jna.Callback;
import com.sun.jna.Pointer;

/**
 * The functions of {@code stratakv.h}, by their names. Handles and addresses are {@code long}, so are lengths: machines have 64 bits here ({@link Library}). Where C wants a
 * pointer to one result, an array of one {@code long} goes; for a structure an array of as many as it has words. JNA copies arrays to native memory and back.
 */
final class Calls {
    private Calls() {}

    /** {@code stratakv_sort_key}. */
    interface SortKey extends Callback {
        long invoke(Pointer context, Pointer key, long keyLen, Pointer sortKey, long room);
    }

    /** {@code stratakv_next}. */
    interface Decide extends Callback {
        int invoke(Pointer context, Pointer before, Pointer next);
    }

    static native long stratakv_version();

    static native long stratakv_status_name(int status);

    static native void stratakv_message_free(long message);

    static native void stratakv_record_free(long[] record);

    static native long stratakv_options_new();

    static native void stratakv_options_free(long options);

    static native int stratakv_options_set(long options, byte[] name, byte[] value, long[] message);

    static native int stratakv_options_order(long options, byte[] name, SortKey sortKey, long context, long[] message);

    static native int stratakv_open(byte[] path, long options, long[] store, long[] message);

    static native int stratakv_close(long store, long[] message);

    static native long stratakv_engine(long store);

    static native long stratakv_wall_ms(long store);

    static native int stratakv_sync(long store, long[] message);

    static native int stratakv_stats(long store, long[] json, long[] message);

    static native int stratakv_backup(long store, byte[] directory, long[] records, long[] message);

    static native int stratakv_restore(byte[] backup, byte[] directory, long options, long[] records, long[] message);

    static native int stratakv_check(byte[] path, long[] records, long[] message);

    static native long stratakv_default(long store);

    static native int stratakv_collection_open(long store, byte[] name, long[] collection, long[] message);

    static native int stratakv_collection_in_order(
            long store, byte[] name, byte[] order, long[] collection, long[] message);

    static native int stratakv_collection_existing(long store, byte[] name, long[] collection, long[] message);

    static native void stratakv_collection_free(long collection);

    static native int stratakv_collection_drop(long store, byte[] name, long[] message);

    static native int stratakv_collection_set_expiry(long store, byte[] name, long expiryMs, long[] message);

    static native int stratakv_collection_expiry(long store, byte[] name, long[] expiryMs, long[] message);

    static native int stratakv_collection_is_list(long store, byte[] name, int[] isList, long[] message);

    static native int stratakv_collection_names(long store, long[] json, long[] message);

    static native int stratakv_get(long collection, byte[] key, long keyLen, long[] record, long[] message);

    static native int stratakv_get_into(
            long collection, long key, long keyLen, long room, long roomLen, long record, long message);

    static native int stratakv_multi_get(
            long collection, long count, long[] keys, long[] keyLens, long[] records, long[] message);

    static native int stratakv_put(
            long collection, byte[] key, long keyLen, byte[] value, long valueLen, long[] options, long[] version,
            long[] message);

    static native int stratakv_delete(long collection, byte[] key, long keyLen, long[] message);

    static native int stratakv_fetch_update(
            long collection, byte[] key, long keyLen, Decide next, long context, long[] version, long[] message);

    static native int stratakv_increment(
            long collection, byte[] key, long keyLen, long by, long[] sum, long[] message);

    static native int stratakv_decrement(
            long collection, byte[] key, long keyLen, long by, long[] left, long[] message);

    static native int stratakv_append(
            long collection, byte[] key, long keyLen, byte[] value, long valueLen, long[] message);

    static native int stratakv_prepend(
            long collection, byte[] key, long keyLen, byte[] value, long valueLen, long[] message);

    static native int stratakv_expire(long collection, byte[] key, long keyLen, long expiryMs, long[] message);

    static native int stratakv_ttl(long collection, byte[] key, long keyLen, long[] ttlMs, long[] message);

    static native int stratakv_delete_range(
            long collection, byte[] from, long fromLen, byte[] to, long toLen, long[] count, long[] message);

    static native int stratakv_delete_prefix(
            long collection, byte[] prefix, long prefixLen, long[] count, long[] message);

    static native int stratakv_count(long collection, long[] count, long[] message);

    static native int stratakv_scan_new(
            long collection, long[] options, long snapshot, long[] scan, long[] message);

    static native int stratakv_scan_begin(
            long collection, long options, long snapshot, long room, long roomLen, long len, long count, long scan,
            long message);

    static native int stratakv_scan_next(long scan, long[] key, long[] keyLen, long[] record, long[] message);

    static native int stratakv_scan_page(long scan, long room, long roomLen, long len, long count, long message);

    static native void stratakv_scan_free(long scan);

    static native int stratakv_snapshot_new(long store, long[] snapshot, long[] message);

    static native int stratakv_snapshot_get(
            long snapshot, long collection, byte[] key, long keyLen, long[] record, long[] message);

    static native void stratakv_snapshot_free(long snapshot);

    static native int stratakv_list_open(long store, byte[] name, long[] list, long[] message);

    static native int stratakv_list_existing(long store, byte[] name, long[] list, long[] message);

    static native void stratakv_list_free(long list);

    static native int stratakv_list_count(long list, long[] count, long[] message);

    static native int stratakv_list_push(long list, int end, byte[] value, long valueLen, long[] message);

    static native int stratakv_list_push_all(
            long list, int end, long count, long[] values, long[] valueLens, long[] message);

    static native int stratakv_list_pop(long list, int end, long[] value, long[] message);

    static native int stratakv_list_pop_many(
            long list, int end, long room, long[] values, long[] count, long[] message);

    static native int stratakv_list_move(
            long from, int fromEnd, long to, int toEnd, long[] value, long[] message);

    static native int stratakv_list_get(long list, long index, long[] value, long[] message);

    static native int stratakv_list_insert(long list, long index, byte[] value, long valueLen, long[] message);

    static native int stratakv_list_position(long list, long index, long[] position, long[] message);

    static native void stratakv_position_free(long position);

    static native int stratakv_list_at(long list, long position, long[] value, long[] message);

    static native int stratakv_list_insert_before(
            long list, long position, byte[] value, long valueLen, long[] message);

    static native int stratakv_list_insert_after(
            long list, long position, byte[] value, long valueLen, long[] message);

    static native int stratakv_list_replace(long list, long position, byte[] value, long valueLen, long[] message);

    static native int stratakv_list_erase(long list, long position, long[] message);

    static native int stratakv_list_elements(long list, int reverse, long[] elements, long[] message);

    static native int stratakv_elements_next(long elements, long[] value, long[] position, long[] message);

    static native void stratakv_elements_free(long elements);

    static native long stratakv_batch_new();

    static native void stratakv_batch_free(long batch);

    static native long stratakv_batch_count(long batch);

    static native int stratakv_batch_put(
            long batch, long collection, byte[] key, long keyLen, byte[] value, long valueLen, long[] options,
            long[] message);

    static native int stratakv_batch_delete(
            long batch, long collection, byte[] key, long keyLen, int expect, long expectVersion, long[] message);

    static native int stratakv_batch_page(long batch, long collection, long page, long len, long message);

    static native int stratakv_batch_push(
            long batch, long list, int end, byte[] value, long valueLen, long[] message);

    static native int stratakv_write(long store, long batch, long[] version, long[] message);

    static native int stratakv_transaction_new(long store, long[] transaction, long[] message);

    static native int stratakv_transaction_get(
            long transaction, long collection, byte[] key, long keyLen, long[] record, long[] message);

    static native int stratakv_transaction_put(
            long transaction, long collection, byte[] key, long keyLen, byte[] value, long valueLen, long[] options,
            long[] message);

    static native int stratakv_transaction_delete(
            long transaction, long collection, byte[] key, long keyLen, long[] message);

    static native int stratakv_transaction_push(
            long transaction, long list, int end, byte[] value, long valueLen, long[] message);

    static native int stratakv_transaction_pop(
            long transaction, long list, int end, long[] value, long[] message);

    static native int stratakv_transaction_peek(
            long transaction, long list, int end, long[] value, long[] message);

    static native int stratakv_transaction_commit(long transaction, long[] version, long[] message);

    static native void stratakv_transaction_free(long transaction);
}
