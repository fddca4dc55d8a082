package io.stratakv;

import java.util.ArrayDeque;

/** Records one behind the other in the room of a {@link Scratch}, as {@code stratakv_entry} says. */
final class Page {
    private static final int VERSION = 0;
    private static final int EXPIRY_MS = 8;
    private static final int VALUE_LEN = 16;
    private static final int KEY_LEN = 24;
    private static final int FLAGS = 28;
    private static final int HEADER = 32;
    private static final long DELETED = -1;

    private Page() {}

    /** Takes all entries of a page. */
    static ArrayDeque<Entry> entries(Scratch scratch, int count) {
        ArrayDeque<Entry> entries = new ArrayDeque<>(count);
        int at = 0;
        for (int i = 0; i < count; i++) {
            int keyLen = scratch.getInt(at + KEY_LEN);
            int valueLen = (int) scratch.getLong(at + VALUE_LEN);
            byte[] key = scratch.get(at + HEADER, keyLen);
            byte[] value = scratch.get(at + HEADER + keyLen, valueLen);
            Record record = new Record(
                    value, scratch.getInt(at + FLAGS), scratch.getLong(at + VERSION),
                    Times.expiry(scratch.getLong(at + EXPIRY_MS)));
            entries.add(new Entry(key, record));
            at = end(at, keyLen, valueLen);
        }
        return entries;
    }


    /** Adds a change, null for a delete; where the next one goes, or -1: there is no room for it. */
    static int add(Scratch scratch, int at, byte[] key, byte[] value) {
        int valueLen = value == null ? 0 : value.length;
        if ((long) at + HEADER + key.length + valueLen > Scratch.ROOM - 8) {
            return -1;
        }
        scratch.putLong(at + VERSION, 0);
        scratch.putLong(at + EXPIRY_MS, 0);
        scratch.putLong(at + VALUE_LEN, value == null ? DELETED : valueLen);
        scratch.putInt(at + KEY_LEN, key.length);
        scratch.putInt(at + FLAGS, 0);
        scratch.put(at + HEADER, key);
        if (value != null) {
            scratch.put(at + HEADER + key.length, value);
        }
        return end(at, key.length, valueLen);
    }

    private static int end(int at, int keyLen, int valueLen) {
        return (at + HEADER + keyLen + valueLen + 7) / 8 * 8;
    }
}
