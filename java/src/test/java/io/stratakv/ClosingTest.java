package io.stratakv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

@ParameterizedClass
@EnumSource(value = Engine.class, names = {"SLAB", "HASH"})
@Timeout(value = 300)
class ClosingTest extends EachEngine {
    private static final byte[] KEY = bytes("k");

    private static void assertClosed(String what, Executable call) {
        IllegalStateException error = assertThrows(IllegalStateException.class, call);
        assertEquals("the " + what + " is closed", error.getMessage());
    }

    @Test
    void whatIsClosedRefuses() {
        Collection collection = store.collection("c");
        StoredList list = store.list("l");
        list.push(End.BACK, KEY);
        collection.put(KEY, KEY);
        Scan scan = collection.scan();
        Elements elements = list.elements();
        WriteBatch batch = new WriteBatch();
        Transaction transaction = store.transaction();
        List<AutoCloseable> all = List.of(collection, list, scan, elements, batch, transaction);
        assertTrue(scan.hasNext() && elements.hasNext(), "what was read ahead is not given after close");
        for (int twice = 0; twice < 2; twice++) {
            all.forEach(each -> {
                try {
                    each.close();
                } catch (Exception error) {
                    throw new AssertionError(error);
                }
            });
        }
        assertClosed("collection", () -> collection.get(KEY));
        assertClosed("list", list::count);
        assertClosed("scan", scan::hasNext);
        assertClosed("scan", scan::next);
        assertClosed("walk", elements::next);
        assertClosed("batch", batch::count);
        assertClosed("batch", () -> store.write(batch));
        assertClosed("transaction", transaction::commit);
        assertTrue(store.collection("c").get(KEY).isPresent(), "the collection itself is there");
    }

    @Test
    void aStoreMayBeClosedBeforeWhatBelongsToIt() {
        Collection collection = store.collection("c");
        StoredList list = store.list("l");
        collection.put(KEY, KEY);
        Scan scan = collection.scan();
        Elements elements = list.elements();
        Transaction transaction = store.transaction();
        transaction.put(collection, KEY, KEY);
        WriteBatch batch = new WriteBatch().put(collection, KEY, KEY);
        store.close();
        store.close();
        assertClosed("store", () -> store.get(KEY));
        assertClosed("store", () -> store.write(batch));
        assertClosed("store", store::stats);
        assertClosed("store", () -> collection.get(KEY));
        assertClosed("store", list::count);
        assertClosed("store", scan::next);
        assertClosed("store", elements::hasNext);
        assertClosed("store", transaction::commit);
        assertClosed("store", () -> batch.put(collection, KEY, KEY));
        assertEquals(1, batch.count());
        List.of(scan, elements, transaction, batch, collection, list).forEach(each -> {
            try {
                each.close();
            } catch (Exception error) {
                throw new AssertionError(error);
            }
        });
    }

    @Test
    void aStoreIsClosedWhileThreadsUseIt() throws Exception {
        Collection collection = store.collection("c");
        StoredList list = store.list("l");
        for (int i = 0; i < 500; i++) {
            collection.put("k" + i, "v");
        }
        list.push(End.BACK, KEY);
        AtomicInteger calls = new AtomicInteger();
        CountDownLatch underWay = new CountDownLatch(400);
        List<Runnable> users = List.of(
                () -> store.put(KEY, KEY),
                () -> collection.get(KEY),
                () -> {
                    try (Scan scan = collection.scan()) {
                        scan.forEachRemaining(entry -> calls.incrementAndGet());
                    }
                },
                () -> list.moveTo(End.FRONT, list, End.BACK),
                () -> store.transact(transaction -> transaction.put(collection, KEY, KEY)),
                () -> collection.fetchUpdate(KEY, before -> Next.put(KEY)));
        AtomicReference<Throwable> wrong = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        for (Runnable user : users) {
            threads.add(new Thread(() -> {
                try {
                    while (true) {
                        user.run();
                        underWay.countDown();
                    }
                } catch (IllegalStateException closed) {
                    calls.incrementAndGet();
                } catch (Throwable other) {
                    wrong.set(other);
                    underWay.countDown();
                }
            }));
        }
        threads.forEach(Thread::start);
        assertTrue(underWay.await(200, TimeUnit.SECONDS));
        store.close();
        Store.check(folder.resolve("data"));
        for (Thread thread : threads) {
            thread.join();
        }
        assertNull(wrong.get(), () -> "instead of an IllegalStateException: " + wrong.get());
    }

    @Test
    void handlesAreClosedWhileThreadsUseThem() throws Exception {
        for (int i = 0; i < 50; i++) {
            store.put("k" + i, "v");
        }
        Collection named = store.collection("c");
        named.put(KEY, KEY);
        for (int round = 0; round < 100; round++) {
            Collection collection = store.collection("c");
            Scan scan = named.scan();
            Transaction transaction = store.transaction();
            CountDownLatch started = new CountDownLatch(3);
            AtomicReference<Throwable> wrong = new AtomicReference<>();
            List<Thread> threads = new ArrayList<>();
            for (Runnable user : List.<Runnable>of(
                    () -> collection.get(KEY), scan::hasNext, () -> transaction.get(named, KEY))) {
                threads.add(new Thread(() -> {
                    try {
                        user.run();
                        started.countDown();
                        while (true) {
                            user.run();
                        }
                    } catch (IllegalStateException closed) {
                        started.countDown();
                    } catch (Throwable other) {
                        wrong.set(other);
                        started.countDown();
                    }
                }));
            }
            threads.forEach(Thread::start);
            started.await();
            collection.close();
            scan.close();
            if (round % 2 == 0) {
                transaction.close();
            } else {
                transaction.commit();
            }
            for (Thread thread : threads) {
                thread.join();
            }
            assertNull(wrong.get(), () -> "instead of an IllegalStateException: " + wrong.get());
        }
    }

    @Test
    void closeWaitsForCallsInOtherThreads() throws Exception {
        CountDownLatch inside = new CountDownLatch(1);
        CountDownLatch goOn = new CountDownLatch(1);
        AtomicBoolean isClosed = new AtomicBoolean();
        Thread updating = new Thread(() -> store.fetchUpdate(KEY, before -> {
            inside.countDown();
            try {
                goOn.await();
            } catch (InterruptedException error) {
                throw new AssertionError(error);
            }
            assertFalse(isClosed.get());
            return Next.put(KEY);
        }));
        updating.start();
        inside.await();
        Thread closing = new Thread(() -> {
            store.close();
            isClosed.set(true);
        });
        closing.start();
        while (closing.getState() != Thread.State.WAITING && closing.isAlive()) {
            Thread.onSpinWait();
        }
        assertClosed("store", () -> store.get(KEY));
        goOn.countDown();
        closing.join();
        updating.join();
        store = Store.open(folder.resolve("data"));
        assertTrue(store.get(KEY).isPresent(), "the update was done before the store was closed");
    }

    @Test
    void aFunctionCannotCloseTheStoreThatWaitsForIt() {
        assertThrows(IllegalStateException.class, () -> store.fetchUpdate(KEY, before -> {
            store.close();
            return Next.put(KEY);
        }));
        assertTrue(store.get(KEY).isEmpty());
    }

    @Test
    void anUnreachableStoreIsClosed() {
        store.close();
        leave();
        // It is locked until the collector has found it.
        for (int tries = 1; !isOpenedAgain(); tries++) {
            assertTrue(tries < 1000, "it is not closed after 1000 collections");
            System.gc();
        }
        assertTrue(store.collection("c").get(KEY).isPresent());
    }

    private boolean isOpenedAgain() {
        try {
            store = Store.open(folder.resolve("data"));
            return true;
        } catch (StrataKvException error) {
            assertEquals(StrataKvException.Kind.LOCKED, error.kind());
            return false;
        }
    }

    private void leave() {
        Store left = Store.open(folder.resolve("data"), options(engine).build());
        left.collection("c").put(KEY, KEY);
    }

    @Test
    void aCollectionKeepsItsStoreOpen() {
        store.close();
        Collection collection = leaveCollection();
        for (int i = 0; i < 20; i++) {
            System.gc();
            collection.put(KEY, KEY);
        }
        collection.store().close();
    }

    private Collection leaveCollection() {
        return Store.open(folder.resolve("data"), options(engine).build()).collection("c");
    }
}
