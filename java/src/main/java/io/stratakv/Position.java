package io.stratakv;

/** Names an element of a list as it was seen. Once that was erased, popped, moved or replaced, it names nothing. It is small; closing it is not needed, only frees it earlier. */
public final class Position implements AutoCloseable {
    private final Handle handle;

    private Position(Handle handle) {
        this.handle = handle;
    }

    static Position of(long address) {
        Handle handle = Handle.shared("position", null, address, Calls::stratakv_position_free);
        Position position = new Position(handle);
        handle.freeAfter(position);
        return position;
    }

    Handle.Use use() {
        return handle.use();
    }

    @Override
    public void close() {
        handle.run();
    }
}
