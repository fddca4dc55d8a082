package io.stratakv;

import java.util.Iterator;
import java.util.NoSuchElementException;

/** A walk over the elements of a list, each read as it is then. It is to be closed. One thread at a time may use it; it goes over them once. */
public final class Elements implements Iterator<Element>, Iterable<Element>, AutoCloseable {
    private final Handle handle;
    private final StoredList list;

    private Element next;
    private boolean isAtEnd;

    Elements(Handle handle, StoredList list) {
        this.handle = handle;
        this.list = list;
    }

    /**
     * Whether there is one more.
     *
     * @return whether
     * @throws StrataKvException it cannot be read; asked again, the walk goes on behind it
     */
    @Override
    public boolean hasNext() {
        try (Handle.Use use = handle.use()) {
            return isNext(use);
        }
    }

    /**
     * The next element.
     *
     * @return it
     * @throws NoSuchElementException there is none
     * @throws StrataKvException as {@link #hasNext}
     */
    @Override
    public Element next() {
        try (Handle.Use use = handle.use()) {
            if (!isNext(use)) {
                throw new NoSuchElementException("the walk is at its end");
            }
            Element taken = next;
            next = null;
            return taken;
        }
    }

    private boolean isNext(Handle.Use use) {
        if (next == null && !isAtEnd) {
            long[] value = new long[Outcome.RECORD_WORDS];
            long[] position = new long[1];
            long[] message = new long[1];
            isAtEnd = !Outcome.isOk(Calls.stratakv_elements_next(use.address(), value, position, message), message);
            if (!isAtEnd) {
                Position named = Position.of(position[0]);
                next = new Element(Outcome.record(value, 0).orElseThrow().value(), named);
            }
        }
        return next != null;
    }

    /**
     * Itself, for a loop: the elements that are left.
     *
     * @return this
     */
    @Override
    public Iterator<Element> iterator() {
        return this;
    }

    /**
     * Whose elements they are.
     *
     * @return the list
     */
    public StoredList list() {
        return list;
    }

    @Override
    public void close() {
        handle.run();
    }
}
