package io.stratakv.streams;

import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * The keys under which a task's collection holds records. The first byte says of what kind they
 * are; nothing else in this package knows the layout.
 *
 * <pre>
 * 00 name                            facts about the store: offsets, position, stream time
 * 01 key                             a record of a key-value store, or a key's latest version
 * 01 segment key time seq            a record of a window store (8, n, 8 and 4 bytes)
 * 01 segment key end start           a session (8, n, 8 and 8 bytes)
 * 02 key, each 00 as 00 FF, 00 00 time   an older version of a key
 * 03 time, key of kind 01 or 02      when a version may be dropped
 * </pre>
 *
 * Numbers are big-endian. Windows and sessions lie as in Kafka's own persistent stores, segment by
 * segment, since Kafka's cache merges its entries in that order.
 */
final class RecordKeys {
    static final byte FACT = 0;
    static final byte DATA = 1;
    static final byte VERSION = 2;
    static final byte EXPIRY = 3;

    private static final int SEGMENT = 1 + Long.BYTES;
    private static final int WINDOW_TAIL = Long.BYTES + Integer.BYTES;
    private static final int SESSION_TAIL = 2 * Long.BYTES;

    private RecordKeys() {}

    static byte[] tagged(byte tag, byte[] key) {
        byte[] made = new byte[1 + key.length];
        made[0] = tag;
        System.arraycopy(key, 0, made, 1, key.length);
        return made;
    }

    static byte[] untagged(byte[] made) {
        return Arrays.copyOfRange(made, 1, made.length);
    }

    /** The first key behind all that begin with a prefix; null if there is none. */
    static byte[] behind(byte[] prefix) {
        for (int at = prefix.length - 1; at >= 0; at--) {
            if (prefix[at] != (byte) 0xFF) {
                byte[] next = Arrays.copyOf(prefix, at + 1);
                next[at]++;
                return next;
            }
        }
        return null;
    }

    /** The first key behind this one. */
    static byte[] after(byte[] key) {
        return Arrays.copyOf(key, key.length + 1);
    }

    // Windows and sessions.

    static byte[] segment(long segment) {
        return ByteBuffer.allocate(SEGMENT).put(DATA).putLong(segment).array();
    }

    static byte[] segmentAndKey(long segment, byte[] key) {
        return ByteBuffer.allocate(SEGMENT + key.length).put(DATA).putLong(segment).put(key).array();
    }

    static byte[] window(long segment, byte[] key, long time, int sequence) {
        return ByteBuffer.allocate(SEGMENT + key.length + WINDOW_TAIL)
                .put(DATA).putLong(segment).put(key).putLong(time).putInt(sequence).array();
    }

    static byte[] session(long segment, byte[] key, long end, long start) {
        return ByteBuffer.allocate(SEGMENT + key.length + SESSION_TAIL)
                .put(DATA).putLong(segment).put(key).putLong(end).putLong(start).array();
    }

    static long segmentOf(byte[] made) {
        return ByteBuffer.wrap(made).getLong(1);
    }

    static byte[] keyOfWindow(byte[] made) {
        return Arrays.copyOfRange(made, SEGMENT, made.length - WINDOW_TAIL);
    }

    static long timeOfWindow(byte[] made) {
        return ByteBuffer.wrap(made).getLong(made.length - WINDOW_TAIL);
    }

    static byte[] keyOfSession(byte[] made) {
        return Arrays.copyOfRange(made, SEGMENT, made.length - SESSION_TAIL);
    }

    static long endOfSession(byte[] made) {
        return ByteBuffer.wrap(made).getLong(made.length - SESSION_TAIL);
    }

    static long startOfSession(byte[] made) {
        return ByteBuffer.wrap(made).getLong(made.length - Long.BYTES);
    }

    /** The key of a window's record in its changelog, which lacks the segment. */
    static byte[] inSegment(long segment, byte[] changelogKey) {
        return segmentAndKey(segment, changelogKey);
    }

    static long timeInChangelogOfWindow(byte[] changelogKey) {
        return ByteBuffer.wrap(changelogKey).getLong(changelogKey.length - WINDOW_TAIL);
    }

    static long endInChangelogOfSession(byte[] changelogKey) {
        return ByteBuffer.wrap(changelogKey).getLong(changelogKey.length - SESSION_TAIL);
    }

    // Versions.

    /** What all older versions of a key begin with. */
    static byte[] versions(byte[] key) {
        ByteBuffer made = ByteBuffer.allocate(1 + 2 * key.length + 2);
        made.put(VERSION);
        for (byte one : key) {
            made.put(one);
            if (one == 0) {
                made.put((byte) 0xFF);
            }
        }
        made.put((byte) 0).put((byte) 0);
        return Arrays.copyOf(made.array(), made.position());
    }

    static byte[] version(byte[] versions, long time) {
        return ByteBuffer.allocate(versions.length + Long.BYTES).put(versions).putLong(time ^ Long.MIN_VALUE).array();
    }

    static long timeOfVersion(byte[] made) {
        return ByteBuffer.wrap(made).getLong(made.length - Long.BYTES) ^ Long.MIN_VALUE;
    }

    /** Notes that the record of a key may be dropped once this time is out of the history. */
    static byte[] expiry(long time, byte[] made) {
        return ByteBuffer.allocate(1 + Long.BYTES + made.length)
                .put(EXPIRY).putLong(time ^ Long.MIN_VALUE).put(made).array();
    }

    static byte[] expiries(long time) {
        return expiry(time, new byte[0]);
    }

    static byte[] expiring(byte[] expiry) {
        return Arrays.copyOfRange(expiry, 1 + Long.BYTES, expiry.length);
    }
}
