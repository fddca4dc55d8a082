package io.stratakv;

/** The condition of a write. */
public final class Expect {
    private static final Expect ANY = new Expect(0, 0);
    private static final Expect ABSENT = new Expect(1, 0);
    private static final Expect PRESENT = new Expect(2, 0);
    private static final int VERSION = 3;

    final int code;
    final long version;

    private Expect(int code, long version) {
        this.code = code;
        this.version = version;
    }

    /**
     * None.
     *
     * @return the condition
     */
    public static Expect any() {
        return ANY;
    }

    /**
     * There is no record.
     *
     * @return the condition
     */
    public static Expect absent() {
        return ABSENT;
    }

    /**
     * There is a record.
     *
     * @return the condition
     */
    public static Expect present() {
        return PRESENT;
    }

    /**
     * There is a record of this version: compare and swap.
     *
     * @param version its version
     * @return the condition
     */
    public static Expect version(long version) {
        return new Expect(VERSION, version);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Expect that && code == that.code && version == that.version;
    }

    @Override
    public int hashCode() {
        return 31 * code + Long.hashCode(version);
    }

    @Override
    public String toString() {
        return switch (code) {
            case 0 -> "any";
            case 1 -> "absent";
            case 2 -> "present";
            default -> "version " + Long.toUnsignedString(version);
        };
    }
}
