package io.stratakv;

import java.util.Arrays;
import java.util.Objects;

/** Which keys a scan gives, and how. Each method makes new options. */
public final class ScanOptions {
    /** Longer ones leave a page too little room. */
    private static final int OPTIONS_BYTES_MAX = Scratch.ROOM / 4;

    private static final ScanOptions ALL = new ScanOptions(null, null, null, 0);

    private static final long FROM_EXCLUDED = 1;
    private static final long TO_INCLUDED = 1L << 8;
    private static final long IS_SORT_PREFIX = 1L << 16;
    private static final long REVERSE = 1L << 24;
    private static final long KEYS_ONLY = 1L << 32;

    private final byte[] from;
    private final byte[] to;
    private final byte[] prefix;
    /** The five bytes behind the pointers of a {@code stratakv_scan_options}. */
    private final long bits;

    private ScanOptions(byte[] from, byte[] to, byte[] prefix, long bits) {
        this.from = from;
        this.to = to;
        this.prefix = prefix;
        this.bits = bits;
    }

    /**
     * Every key, upwards.
     *
     * @return the options
     */
    public static ScanOptions all() {
        return ALL;
    }

    /**
     * The keys that begin with a prefix. In a collection in an order of yours it is refused unless it is empty.
     *
     * @param prefix how they begin
     * @return the options
     */
    public static ScanOptions prefix(byte[] prefix) {
        return new ScanOptions(null, null, copy(prefix, "prefix"), 0);
    }

    /**
     * The keys whose sort key begins with a prefix.
     *
     * @param prefix how their sort keys begin
     * @return the options
     */
    public static ScanOptions sortPrefix(byte[] prefix) {
        return new ScanOptions(null, null, copy(prefix, "prefix"), IS_SORT_PREFIX);
    }

    /**
     * The keys from one up to, not including, another.
     *
     * @param from the first
     * @param to the one behind the last
     * @return the options
     */
    public static ScanOptions range(byte[] from, byte[] to) {
        return new ScanOptions(copy(from, "from"), copy(to, "to"), null, 0);
    }

    /**
     * From a key on. A scan has bounds or a prefix, not both.
     *
     * @param key the first
     * @return new options
     */
    public ScanOptions from(byte[] key) {
        return new ScanOptions(copy(key, "key"), to, prefix, bits & ~FROM_EXCLUDED);
    }

    /**
     * From behind a key on.
     *
     * @param key the one before the first
     * @return new options
     */
    public ScanOptions after(byte[] key) {
        return new ScanOptions(copy(key, "key"), to, prefix, bits | FROM_EXCLUDED);
    }

    /**
     * Up to a key, not including it.
     *
     * @param key the one behind the last
     * @return new options
     */
    public ScanOptions to(byte[] key) {
        return new ScanOptions(from, copy(key, "key"), prefix, bits & ~TO_INCLUDED);
    }

    /**
     * Up to a key, including it.
     *
     * @param key the last
     * @return new options
     */
    public ScanOptions through(byte[] key) {
        return new ScanOptions(from, copy(key, "key"), prefix, bits | TO_INCLUDED);
    }

    /**
     * Downwards: costs the same.
     *
     * @return new options
     */
    public ScanOptions reverse() {
        return new ScanOptions(from, to, prefix, bits | REVERSE);
    }

    /**
     * Without values: costs no I/O. Records come back empty.
     *
     * @return new options
     */
    public ScanOptions keysOnly() {
        return new ScanOptions(from, to, prefix, bits | KEYS_ONLY);
    }

    /** As a {@code stratakv_scan_options} at the end of the room, what it points to behind it: where it begins; -1 if that is too long. */
    int write(Scratch scratch) {
        byte[][] pieces = {from, to, prefix};
        long needed = (2 * pieces.length + 1) * Long.BYTES;
        int behind = (int) needed;
        for (byte[] piece : pieces) {
            needed += piece == null ? 0 : piece.length;
        }
        if (needed > OPTIONS_BYTES_MAX) {
            return -1;
        }
        int begin = (Scratch.ROOM - (int) needed) / Long.BYTES * Long.BYTES;
        int at = begin;
        int end = begin + behind;
        for (byte[] piece : pieces) {
            scratch.putLong(at, piece == null ? 0 : scratch.room() + end);
            scratch.putLong(at + Long.BYTES, piece == null ? 0 : piece.length);
            if (piece != null) {
                scratch.put(end, piece);
                end += piece.length;
            }
            at += 2 * Long.BYTES;
        }
        scratch.putLong(at, bits);
        return begin;
    }

    Pieces pieces() {
        return new Pieces(Arrays.asList(from, to, prefix));
    }

    /** As a {@code stratakv_scan_options} that points to the pieces. */
    long[] words(Pieces pieces) {
        long[] at = pieces.addresses;
        long[] lens = pieces.lens;
        return new long[] {at[0], lens[0], at[1], lens[1], at[2], lens[2], bits};
    }

    private static byte[] copy(byte[] bytes, String what) {
        return Objects.requireNonNull(bytes, what).clone();
    }
}
