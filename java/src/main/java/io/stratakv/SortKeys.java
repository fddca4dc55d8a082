package io.stratakv;

import com.sun.jna.Pointer;
import java.util.Objects;

/** An {@link Order} as native code calls it. */
final class SortKeys implements Calls.SortKey {
    /** Longer than any: the store refuses the key, and so the call ends without having done anything. */
    private static final long FAILED = -1;

    private final Order order;

    SortKeys(Order order) {
        this.order = order;
    }

    @Override
    public long invoke(Pointer context, Pointer key, long keyLen, Pointer sortKey, long room) {
        byte[] sorted = Callbacks.sorting(() -> {
            byte[] made = order.sortKey(key.getByteArray(0, (int) keyLen));
            return Objects.requireNonNull(made, "sort key that an order made");
        });
        if (sorted == null) {
            return FAILED;
        }
        sortKey.write(0, sorted, 0, (int) Math.min(sorted.length, room));
        return sorted.length;
    }
}
