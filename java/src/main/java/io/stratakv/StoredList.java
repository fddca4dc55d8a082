package io.stratakv;

import java.util.List;
import java.util.Objects;
import java.util.Optional;

/**
 * A list of values in the order in which they were put, in the store. Every method may be called by any number of threads at once. Ends cost a look at one key and a write; an index costs a look at each key before
 * it, from the end it is counted from; a {@link Position} costs a look at one key.
 */
public final class StoredList implements AutoCloseable {
    /** What is made room for without asking how many elements there are. */
    private static final int ROOM = 1024;

    private final Handle handle;
    private final Store store;

    StoredList(Handle handle, Store store) {
        this.handle = handle;
        this.store = store;
    }

    Handle.Use use() {
        return handle.use();
    }

    /**
     * Whose list it is.
     *
     * @return the store
     */
    public Store store() {
        return store;
    }

    /** Frees the handle; the list in the store stays. */
    @Override
    public void close() {
        handle.run();
    }

    /**
     * How many elements there are. Costs a look at each key in the index.
     *
     * @return how many
     */
    public long count() {
        try (Handle.Use use = use()) {
            long[] count = new long[1];
            long[] message = new long[1];
            Outcome.check(Calls.stratakv_list_count(use.address(), count, message), message);
            return count[0];
        }
    }

    /**
     * Puts an element at an end.
     *
     * @param end where
     * @param value the element
     */
    public void push(End end, byte[] value) {
        Objects.requireNonNull(end, "end");
        Objects.requireNonNull(value, "value");
        try (Handle.Use use = use()) {
            long[] message = new long[1];
            Outcome.check(
                    Calls.stratakv_list_push(use.address(), end.code, value, value.length, message), message);
        }
    }

    /**
     * Puts elements at an end, one after the other, as one step. Costs one batch.
     *
     * @param end where
     * @param values the elements
     */
    public void pushAll(End end, List<byte[]> values) {
        Objects.requireNonNull(end, "end");
        try (Pieces pieces = Pieces.all(values, "values"); Handle.Use use = use()) {
            long[] message = new long[1];
            int status = Calls.stratakv_list_push_all(
                    use.address(), end.code, pieces.lens.length, pieces.addresses, pieces.lens, message);
            Outcome.check(status, message);
        }
    }

    /**
     * Takes the element at an end.
     *
     * @param end where
     * @return the element; empty if the list is
     */
    public Optional<byte[]> pop(End end) {
        Objects.requireNonNull(end, "end");
        try (Handle.Use use = use()) {
            long[] value = new long[Outcome.RECORD_WORDS];
            long[] message = new long[1];
            int status = Calls.stratakv_list_pop(use.address(), end.code, value, message);
            return Outcome.takeValue(status, value, message);
        }
    }

    /**
     * Takes several elements from an end, as one step. Costs one batch.
     *
     * @param end where
     * @param most how many at most
     * @return the elements, from that end on
     * @throws IllegalArgumentException {@code most} is negative
     */
    public List<byte[]> popMany(End end, int most) {
        Objects.requireNonNull(end, "end");
        if (most < 0) {
            throw new IllegalArgumentException("most is negative: " + most);
        }
        try (Handle.Use use = use()) {
            int room = most <= ROOM ? most : (int) Math.min(most, Math.max(ROOM, count()));
            long[] values = new long[Math.multiplyExact(room, Outcome.RECORD_WORDS)];
            long[] count = new long[1];
            long[] message = new long[1];
            int status = Calls.stratakv_list_pop_many(use.address(), end.code, room, values, count, message);
            Outcome.check(status, message);
            List<Optional<Record>> taken = Collection.takeAll(values, (int) count[0]);
            return taken.stream().map(record -> record.orElseThrow().value()).toList();
        }
    }

    /**
     * Moves an element from an end of this list to an end of another, or of itself, as one step.
     *
     * @param end from where
     * @param to to which list
     * @param toEnd where there
     * @return the element; empty if this list is
     */
    public Optional<byte[]> moveTo(End end, StoredList to, End toEnd) {
        Objects.requireNonNull(end, "end");
        Objects.requireNonNull(to, "to");
        Objects.requireNonNull(toEnd, "toEnd");
        try (Handle.Use use = use(); Handle.Use other = to.use()) {
            long[] value = new long[Outcome.RECORD_WORDS];
            long[] message = new long[1];
            int status = Calls.stratakv_list_move(
                    use.address(), end.code, other.address(), toEnd.code, value, message);
            return Outcome.takeValue(status, value, message);
        }
    }

    /**
     * Reads the element at an index.
     *
     * @param index from 0; from the back if it is negative: -1 is the last
     * @return the element, if there is one
     */
    public Optional<byte[]> get(long index) {
        try (Handle.Use use = use()) {
            long[] value = new long[Outcome.RECORD_WORDS];
            long[] message = new long[1];
            int status = Calls.stratakv_list_get(use.address(), index, value, message);
            return Outcome.takeValue(status, value, message);
        }
    }

    /**
     * Inserts before the element at an index.
     *
     * @param index from 0; from the back if it is negative
     * @param value the new element
     * @return whether there is such an element; if not, nothing was inserted
     */
    public boolean insert(long index, byte[] value) {
        Objects.requireNonNull(value, "value");
        try (Handle.Use use = use()) {
            long[] message = new long[1];
            int status = Calls.stratakv_list_insert(use.address(), index, value, value.length, message);
            return Outcome.isOk(status, message);
        }
    }

    /**
     * Names the element at an index as it is now.
     *
     * @param index from 0; from the back if it is negative
     * @return its position, if there is such an element
     */
    public Optional<Position> position(long index) {
        try (Handle.Use use = use()) {
            long[] position = new long[1];
            long[] message = new long[1];
            int status = Calls.stratakv_list_position(use.address(), index, position, message);
            return Outcome.isOk(status, message) ? Optional.of(Position.of(position[0])) : Optional.empty();
        }
    }

    /**
     * Reads an element.
     *
     * @param position names it
     * @return its value; empty if it is gone
     */
    public Optional<byte[]> at(Position position) {
        Objects.requireNonNull(position, "position");
        try (Handle.Use use = use(); Handle.Use named = position.use()) {
            long[] value = new long[Outcome.RECORD_WORDS];
            long[] message = new long[1];
            int status = Calls.stratakv_list_at(use.address(), named.address(), value, message);
            return Outcome.takeValue(status, value, message);
        }
    }

    /**
     * Inserts before an element.
     *
     * @param position names it
     * @param value the new element
     * @return whether it was there; if not, nothing was inserted
     */
    public boolean insertBefore(Position position, byte[] value) {
        return change(position, value, Calls::stratakv_list_insert_before);
    }

    /**
     * Inserts after an element.
     *
     * @param position names it
     * @param value the new element
     * @return whether it was there; if not, nothing was inserted
     */
    public boolean insertAfter(Position position, byte[] value) {
        return change(position, value, Calls::stratakv_list_insert_after);
    }

    /**
     * Puts another value in an element's place; the position names nothing afterwards.
     *
     * @param position names it
     * @param value the new element
     * @return whether it was there; if not, nothing was changed
     */
    public boolean replace(Position position, byte[] value) {
        return change(position, value, Calls::stratakv_list_replace);
    }

    /** A call that changes something at a position. */
    private interface AtPosition {
        int call(long list, long position, byte[] value, long valueLen, long[] message);
    }

    private boolean change(Position position, byte[] value, AtPosition call) {
        Objects.requireNonNull(position, "position");
        Objects.requireNonNull(value, "value");
        try (Handle.Use use = use(); Handle.Use named = position.use()) {
            long[] message = new long[1];
            int status = call.call(use.address(), named.address(), value, value.length, message);
            return Outcome.isOk(status, message);
        }
    }

    /**
     * Removes an element.
     *
     * @param position names it
     * @return whether it was there
     */
    public boolean erase(Position position) {
        Objects.requireNonNull(position, "position");
        try (Handle.Use use = use(); Handle.Use named = position.use()) {
            long[] message = new long[1];
            return Outcome.isOk(Calls.stratakv_list_erase(use.address(), named.address(), message), message);
        }
    }

    /**
     * Walks over the elements from the front. To be closed.
     *
     * @return the walk
     */
    public Elements elements() {
        return walk(0);
    }

    /**
     * Walks over the elements from the back. To be closed.
     *
     * @return the walk
     */
    public Elements elementsFromBack() {
        return walk(1);
    }

    private Elements walk(int reverse) {
        try (Handle.Use use = use()) {
            long[] begun = new long[1];
            long[] message = new long[1];
            Outcome.check(Calls.stratakv_list_elements(use.address(), reverse, begun, message), message);
            Handle own = Handle.exclusive("walk", store.handle(), begun[0], Calls::stratakv_elements_free);
            Elements elements = new Elements(own, this);
            own.freeAfter(elements);
            return elements;
        }
    }
}
