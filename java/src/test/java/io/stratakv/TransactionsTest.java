package io.stratakv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

@ParameterizedClass
@EnumSource(value = Engine.class, names = {"SLAB", "HASH"})
class TransactionsTest extends EachEngine {
    private static final byte[] A = bytes("a");
    private static final byte[] B = bytes("b");

    @Test
    void aBatchIsMadeAsOne() {
        Collection other = store.collection("other");
        StoredList list = store.list("list");
        store.put(A, bytes("old"));
        try (WriteBatch batch = new WriteBatch()) {
            PutOptions flagged = PutOptions.defaults().withFlags(3);
            batch.put(store, B, bytes("1")).put(other, A, bytes("2"), flagged).delete(store, A).push(list, End.BACK, B);
            assertEquals(4, batch.count());
            assertTrue(store.write(batch).isPresent());
            assertEquals(0, batch.count());
        }
        assertEquals(Optional.empty(), store.get(A));
        assertEquals("1", store.get(B).orElseThrow().text());
        assertEquals(3, other.get(A).orElseThrow().flags());
        assertEquals(1, list.count());
    }

    @Test
    void aBatchWhoseConditionDoesNotHoldChangesNothing() {
        long version = store.put(A, bytes("1"));
        try (WriteBatch batch = new WriteBatch()) {
            batch.put(store, B, bytes("x")).delete(store, A, Expect.version(version + 1));
            assertEquals(OptionalLong.empty(), store.write(batch));
            batch.put(store, B, bytes("x"), PutOptions.defaults().withExpect(Expect.present()));
            assertEquals(OptionalLong.empty(), store.write(batch));
            batch.put(store, B, new byte[0]).put(store, new byte[0], B);
            assertThrows(StrataKvException.class, () -> store.write(batch));
            assertFalse(store.get(B).isPresent());
            assertTrue(store.write(batch.delete(store, A, Expect.version(version))).isPresent());
        }
    }

    @Test
    void aTransactionSeesItsOwnWritesAndOthersDoNot() {
        StoredList list = store.list("list");
        list.push(End.BACK, A);
        Transaction transaction = store.transaction();
        transaction.put(store, A, bytes("1"));
        assertFalse(transaction.put(store, B, A, PutOptions.defaults().withExpect(Expect.present())));
        assertEquals("1", transaction.get(store, A).orElseThrow().text());
        assertEquals("a", text(transaction.peek(list, End.FRONT).orElseThrow()));
        assertEquals("a", text(transaction.pop(list, End.FRONT).orElseThrow()));
        assertTrue(transaction.pop(list, End.FRONT).isEmpty());
        transaction.push(list, End.BACK, B);
        assertEquals(Optional.empty(), store.get(A));
        assertEquals("a", text(list.get(0).orElseThrow()));
        assertSame(store, transaction.store());
        assertTrue(transaction.commit().isPresent());
        assertEquals("1", store.get(A).orElseThrow().text());
        assertEquals("b", text(list.get(0).orElseThrow()));
        assertThrows(IllegalStateException.class, () -> transaction.get(store, A));
        assertThrows(IllegalStateException.class, transaction::commit);
        transaction.close();
    }

    @Test
    void whatIsNotCommittedIsNotDone() {
        store.put(A, bytes("1"));
        try (Transaction transaction = store.transaction()) {
            transaction.delete(store, A);
            assertEquals(Optional.empty(), transaction.get(store, A));
        }
        assertEquals("1", store.get(A).orElseThrow().text());
    }

    @Test
    void aConflictIsToldAndNothingIsDone() {
        store.put(A, bytes("1"));
        Transaction transaction = store.transaction();
        transaction.get(store, A);
        transaction.put(store, B, bytes("x"));
        store.put(A, bytes("2"));
        assertEquals(OptionalLong.empty(), transaction.commit());
        assertEquals(Optional.empty(), store.get(B));
    }

    @Test
    void transactTriesAgainAfterAConflict() {
        store.put(A, bytes("1"));
        AtomicInteger runs = new AtomicInteger();
        String read = store.transactResult(transaction -> {
            String seen = transaction.get(store, A).orElseThrow().text();
            if (runs.incrementAndGet() == 1) {
                store.put(A, bytes("2"));
            }
            transaction.put(store, B, bytes(seen));
            return seen;
        });
        assertEquals("2", read);
        assertEquals(2, runs.get());
        assertEquals("2", store.get(B).orElseThrow().text());
    }

    @Test
    void transactGivesUpAfterManyConflicts() {
        AtomicInteger runs = new AtomicInteger();
        StrataKvException error = assertThrows(StrataKvException.class, () -> store.transact(transaction -> {
            transaction.get(store, A);
            transaction.put(store, B, A);
            store.put(A, bytes("" + runs.incrementAndGet()));
        }));
        assertEquals(StrataKvException.Kind.BUSY, error.kind());
        assertEquals(100, runs.get());
    }

    @Test
    void anExceptionGivesATransactionUp() {
        IOException mine = new IOException("mine");
        assertSame(mine, assertThrows(IOException.class, () -> store.transact(transaction -> {
            transaction.put(store, A, A);
            throw mine;
        })));
        assertEquals(Optional.empty(), store.get(A));
    }

    @Test
    void threadsThatMoveMoneyLoseNone() throws Exception {
        store.put(A, bytes("1000"));
        store.put(B, bytes("1000"));
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            int amount = i + 1;
            threads.add(new Thread(() -> {
                for (int n = 0; n < 30; n++) {
                    store.transact(transaction -> {
                        long from = Long.parseLong(transaction.get(store, A).orElseThrow().text());
                        long to = Long.parseLong(transaction.get(store, B).orElseThrow().text());
                        transaction.put(store, A, bytes(Long.toString(from - amount)));
                        transaction.put(store, B, bytes(Long.toString(to + amount)));
                    });
                }
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        assertEquals("820", store.get(A).orElseThrow().text());
        assertEquals("1180", store.get(B).orElseThrow().text());
    }
}
