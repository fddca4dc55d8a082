package io.stratakv;

import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * Native memory for arguments and results of one call. A call whose arguments are all numbers costs
 * a fraction of one that is given arrays; what lies here is read and written without a call.
 */
final class Scratch implements AutoCloseable {
    /** Room for keys and values of one call, in bytes. */
    static final int ROOM = 64 << 10;

    private static final int MESSAGE = 0;
    private static final int RECORD = 8;
    private static final int LEN = RECORD + Outcome.RECORD_WORDS * Long.BYTES;
    private static final int COUNT = LEN + Long.BYTES;
    private static final int ROOM_AT = COUNT + Long.BYTES;

    /** Those that no call uses; a thread begins to look at a place of its own. */
    private static final AtomicReferenceArray<Scratch> FREE = new AtomicReferenceArray<>(16);

    private final Memory memory = new Memory(ROOM_AT + ROOM);
    private final long address = Pointer.nativeValue(memory);
    private final ByteBuffer bytes = memory.getByteBuffer(0, ROOM_AT + ROOM).order(ByteOrder.nativeOrder());

    private Scratch() {}

    /** One that nobody else uses until it is closed. */
    static Scratch take() {
        int place = place();
        Scratch free = FREE.getAndSet(place, null);
        return free == null ? new Scratch() : free;
    }

    private static int place() {
        return (int) (Thread.currentThread().getId() % FREE.length());
    }

    long message() {
        return address + MESSAGE;
    }

    long record() {
        return address + RECORD;
    }

    long len() {
        return address + LEN;
    }

    long count() {
        return address + COUNT;
    }

    long room() {
        return address + ROOM_AT;
    }

    /** What a call has left as its message, as {@link Outcome#check} takes it. */
    long[] takeMessage() {
        return new long[] {bytes.getLong(MESSAGE)};
    }

    /** The record that a call has left. */
    long[] takeRecord() {
        long[] words = new long[Outcome.RECORD_WORDS];
        for (int word = 0; word < words.length; word++) {
            words[word] = bytes.getLong(RECORD + word * Long.BYTES);
        }
        return words;
    }

    /** What a call has left where a record would be. */
    long takeAddress() {
        return bytes.getLong(RECORD);
    }

    int takeCount() {
        return Math.toIntExact(bytes.getLong(COUNT));
    }

    /** Puts bytes at a place of the room. */
    void put(int at, byte[] piece) {
        bytes.put(ROOM_AT + at, piece);
    }

    /** Bytes at a place of the room. */
    byte[] get(int at, int len) {
        byte[] piece = new byte[len];
        bytes.get(ROOM_AT + at, piece);
        return piece;
    }

    long getLong(int at) {
        return bytes.getLong(ROOM_AT + at);
    }

    int getInt(int at) {
        return bytes.getInt(ROOM_AT + at);
    }

    void putLong(int at, long value) {
        bytes.putLong(ROOM_AT + at, value);
    }

    void putInt(int at, int value) {
        bytes.putInt(ROOM_AT + at, value);
    }

    /** Where in the room an address lies; -1 if elsewhere. */
    int placeOf(long pointer) {
        long at = pointer - room();
        return at >= 0 && at < ROOM ? (int) at : -1;
    }

    @Override
    public void close() {
        if (!FREE.compareAndSet(place(), null, this)) {
            memory.close();
        }
    }
}
