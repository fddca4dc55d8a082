package io.stratakv;

import java.lang.ref.Cleaner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongConsumer;

/**
 * Something native, by its address, and how many calls use it now. It is freed once: when it has been closed and the last of them is over. A call on what is closed is an
 * {@link IllegalStateException} before it reaches native code; so it is when the store it belongs to is closed.
 */
final class Handle implements Runnable {
    /** Two numbers cannot meet: so many calls at once there are not. */
    private static final long CLOSED = 1L << 62;

    private static final Cleaner CLEANER = Cleaner.create();

    private final String what;
    private final Handle parent;
    private final long address;
    private final LongConsumer free;
    /** Of what belongs to one thread at a time; else null. */
    private final ReentrantLock turn;

    private final AtomicLong uses = new AtomicLong();
    private final CountDownLatch freed = new CountDownLatch(1);
    private boolean isSpent;
    private RuntimeException failure;

    private Handle(String what, Handle parent, long address, LongConsumer free, ReentrantLock turn) {
        this.what = what;
        this.parent = parent;
        this.address = address;
        this.free = free;
        this.turn = turn;
    }

    /** A call under way; it ends with {@link #close}. */
    interface Use extends AutoCloseable {
        long address();

        @Override
        void close();
    }

    /** For any number of threads at once. */
    static Handle shared(String what, Handle parent, long address, LongConsumer free) {
        return new Handle(what, parent, address, free, null);
    }

    /** For one thread at a time: others wait. */
    static Handle exclusive(String what, Handle parent, long address, LongConsumer free) {
        return new Handle(what, parent, address, free, new ReentrantLock());
    }

    long address() {
        return address;
    }

    /** Whether a call would be refused, as it or what it belongs to is closed. */
    boolean isClosed() {
        return uses.get() >= CLOSED || parent != null && parent.isClosed();
    }

    /** Frees it when {@code owner} is unreachable, if nobody has closed it before. */
    void freeAfter(Object owner) {
        CLEANER.register(owner, this);
    }

    /** Begins a call. */
    Use use() {
        return use(address);
    }

    /** Begins a call on something else that lives as long as this does. */
    Use use(long address) {
        Callbacks.refuseInOrder();
        enter();
        return new Use() {
            @Override
            public long address() {
                return address;
            }

            @Override
            public void close() {
                leave();
            }
        };
    }

    private void enter() {
        if (parent != null) {
            parent.enter();
        }
        if (turn != null) {
            turn.lock();
        }
        if (!count()) {
            unlock();
            throw new IllegalStateException("the " + what + " is closed");
        }
    }

    private boolean count() {
        long before = uses.get();
        while (before < CLOSED) {
            if (uses.compareAndSet(before, before + 1)) {
                return true;
            }
            before = uses.get();
        }
        return false;
    }

    private void leave() {
        if (uses.decrementAndGet() == CLOSED) {
            end();
        }
        unlock();
    }

    private void unlock() {
        if (turn != null) {
            turn.unlock();
        }
        if (parent != null) {
            parent.leave();
        }
    }

    /** In a call: it consumes what is native, so nothing is to be freed. */
    void spend() {
        isSpent = true;
        run();
    }

    /** Closes it, without waiting for calls that use it. */
    @Override
    public void run() {
        long before = uses.getAndUpdate(now -> now | CLOSED);
        if (before == 0) {
            end();
        }
    }

    /** Closes it, and waits until it is freed. What freeing it failed with is thrown to the first who asks. */
    void closeAndWait() {
        Callbacks.refuseInCallback("the " + what + " cannot be closed");
        boolean isFirst = uses.get() < CLOSED;
        run();
        boolean wasInterrupted = false;
        while (true) {
            try {
                freed.await();
                break;
            } catch (InterruptedException interrupted) {
                wasInterrupted = true;
            }
        }
        if (wasInterrupted) {
            Thread.currentThread().interrupt();
        }
        if (isFirst && failure != null) {
            throw failure;
        }
    }

    private void end() {
        try {
            if (!isSpent) {
                free.accept(address);
            }
        } catch (RuntimeException error) {
            failure = error;
        } finally {
            freed.countDown();
        }
    }
}
