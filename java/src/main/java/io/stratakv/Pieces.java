package io.stratakv;

import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import java.util.List;
import java.util.Objects;

/** Several byte arrays in native memory, until it is closed. A piece that is null has the address 0. */
final class Pieces implements AutoCloseable {
    final long[] addresses;
    final long[] lens;
    private final Memory memory;

    Pieces(List<byte[]> pieces) {
        addresses = new long[pieces.size()];
        lens = new long[pieces.size()];
        long total = 1;
        for (byte[] piece : pieces) {
            total += piece == null ? 0 : piece.length;
        }
        memory = new Memory(total);
        long next = 0;
        for (int i = 0; i < addresses.length; i++) {
            byte[] piece = pieces.get(i);
            if (piece != null) {
                memory.write(next, piece, 0, piece.length);
                addresses[i] = Pointer.nativeValue(memory) + next;
                lens[i] = piece.length;
                next += piece.length;
            }
        }
    }

    /** All of which are there. */
    static Pieces all(List<byte[]> pieces, String what) {
        Objects.requireNonNull(pieces, what);
        for (byte[] piece : pieces) {
            Objects.requireNonNull(piece, "one of " + what);
        }
        return new Pieces(pieces);
    }

    @Override
    public void close() {
        memory.close();
    }
}
