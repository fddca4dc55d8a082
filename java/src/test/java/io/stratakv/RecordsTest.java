package io.stratakv;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

@ParameterizedClass
@EnumSource(value = Engine.class, names = {"SLAB", "HASH"})
class RecordsTest extends EachEngine {
    private static final byte[] KEY = bytes("key");

    @Test
    void whatWasPutIsRead() {
        assertEquals(Optional.empty(), store.get(KEY));
        long version = store.put("key", "value");
        Record record = store.get("key").orElseThrow();
        assertEquals("value", record.text());
        assertEquals(new Record(bytes("value"), 0, version, Optional.empty()), record);
        assertTrue(Long.compareUnsigned(store.put(KEY, bytes("newer")), version) > 0);
        assertTrue(store.delete("key"));
        assertFalse(store.delete(KEY));
        assertEquals(Optional.empty(), store.get("key"));
    }

    @Test
    void anyBytesAreKeysAndValues() {
        byte[] key = {0, -1, 0, 'k'};
        byte[] large = new byte[2 << 20];
        new Random(7).nextBytes(large);
        for (byte[] value : List.of(new byte[0], new byte[] {0}, large)) {
            store.put(key, value);
            assertArrayEquals(value, store.get(key).orElseThrow().value());
        }
        assertEquals(Optional.empty(), store.get(new byte[] {0, -1, 0}));
    }

    @Test
    void flagsAndExpiryBelongToTheRecord() {
        Instant expiry = Instant.ofEpochMilli(store.now().plusSeconds(1000).toEpochMilli() | 1);
        store.put(KEY, bytes("v"), PutOptions.defaults().withFlags(0xFEDCBA98).withExpiry(expiry));
        Record record = store.get(KEY).orElseThrow();
        assertEquals(0xFEDCBA98, record.flags());
        assertEquals(Optional.of(expiry), record.expiry());
        Duration left = store.timeToLive(KEY).orElseThrow();
        assertTrue(left.compareTo(Duration.ofSeconds(1001)) <= 0 && left.compareTo(Duration.ofSeconds(900)) > 0);

        assertTrue(store.expire(KEY, Instant.MAX));
        assertEquals(Optional.of(Collection.FOREVER), store.timeToLive(KEY));
        assertEquals(Optional.empty(), store.get(KEY).orElseThrow().expiry());
        assertTrue(store.expire(KEY, Instant.EPOCH));
        assertEquals(Optional.empty(), store.get(KEY));
        assertEquals(Optional.empty(), store.timeToLive(KEY));
        assertFalse(store.expire(KEY, Instant.MAX));
        store.put(KEY, bytes("v"), PutOptions.defaults().withExpiry(Instant.MIN));
        assertEquals(Optional.empty(), store.get(KEY));
    }

    @Test
    void conditionsAreKept() {
        PutOptions add = PutOptions.defaults().withExpect(Expect.absent());
        PutOptions replace = PutOptions.defaults().withExpect(Expect.present());
        assertEquals(OptionalLong.empty(), store.put(KEY, bytes("1"), replace));
        long first = store.put(KEY, bytes("2"), add).orElseThrow();
        assertEquals(OptionalLong.empty(), store.put(KEY, bytes("3"), add));
        PutOptions swap = PutOptions.defaults().withExpect(Expect.version(first));
        long second = store.put(KEY, bytes("4"), swap).orElseThrow();
        assertEquals(OptionalLong.empty(), store.put(KEY, bytes("5"), swap));
        assertEquals("4", store.get(KEY).orElseThrow().text());
        assertEquals(second, store.get(KEY).orElseThrow().version());
        assertTrue(store.put(KEY, bytes("6"), replace).isPresent());
    }

    @Test
    void manyAreReadAtOnce() {
        List<byte[]> keys = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            keys.add(bytes("k" + i));
            if (i % 3 != 0) {
                store.put("k" + i, "v".repeat(i));
            }
        }
        List<Optional<Record>> found = store.multiGet(keys);
        assertEquals(200, found.size());
        for (int i = 0; i < 200; i++) {
            Optional<String> expected = i % 3 == 0 ? Optional.empty() : Optional.of("v".repeat(i));
            assertEquals(expected, found.get(i).map(Record::text));
        }
        assertEquals(List.of(), store.multiGet(List.of()));
        List<byte[]> withNull = new ArrayList<>(keys);
        withNull.set(5, null);
        assertEquals("one of keys", assertThrows(NullPointerException.class, () -> store.multiGet(withNull)).getMessage());
    }

    @Test
    void aRecordIsChangedInDependenceOnItself() {
        Instant expiry = Instant.ofEpochMilli(store.now().plusSeconds(100).toEpochMilli());
        OptionalLong made = store.fetchUpdate(KEY, before -> {
            assertEquals(Optional.empty(), before);
            return Next.put(bytes("1")).withFlags(-2).withExpiry(expiry);
        });
        Record record = store.get(KEY).orElseThrow();
        assertEquals(new Record(bytes("1"), -2, made.orElseThrow(), Optional.of(expiry)), record);
        assertEquals(OptionalLong.empty(), store.fetchUpdate(KEY, before -> {
            assertEquals(Optional.of(record), before);
            return Next.keep();
        }));
        store.fetchUpdate(KEY, before -> Next.put(new byte[0]));
        assertEquals("", store.get(KEY).orElseThrow().text());
        store.fetchUpdate(KEY, before -> Next.remove());
        assertEquals(Optional.empty(), store.get(KEY));
    }

    @Test
    void anExceptionComesOutOfAnUpdateAndNothingIsChanged() {
        store.put(KEY, bytes("1"));
        RuntimeException mine = new RuntimeException("mine");
        assertSame(mine, assertThrows(RuntimeException.class, () -> store.fetchUpdate(KEY, before -> {
            throw mine;
        })));
        Error worse = new StackOverflowError("worse");
        assertSame(worse, assertThrows(Error.class, () -> store.fetchUpdate(KEY, before -> {
            throw worse;
        })));
        assertThrows(NullPointerException.class, () -> store.fetchUpdate(KEY, before -> null));
        assertEquals("1", store.get(KEY).orElseThrow().text());
    }

    @Test
    void anUpdateMayUpdateAnotherRecord() {
        store.put("a", "1");
        store.fetchUpdate(bytes("a"), before -> {
            if (before.orElseThrow().text().equals("1")) {
                // So it is called again, after what it had called.
                store.put("a", "2");
            }
            store.fetchUpdate(bytes("b"), other -> Next.put(bytes("of b")));
            assertThrows(IllegalArgumentException.class, () -> store.fetchUpdate(bytes("c"), other -> {
                throw new IllegalArgumentException();
            }));
            return Next.put(bytes("of a"));
        });
        assertEquals("of a", store.get("a").orElseThrow().text());
        assertEquals("of b", store.get("b").orElseThrow().text());
        assertEquals(Optional.empty(), store.get("c"));
    }

    @Test
    void threadsThatUpdateOneRecordLoseNothing() throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            threads.add(new Thread(() -> {
                for (int n = 0; n < 100; n++) {
                    store.fetchUpdate(KEY, before -> {
                        long sum = before.map(record -> Long.parseLong(record.text())).orElse(0L) + 1;
                        return Next.put(bytes(Long.toString(sum)));
                    });
                }
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        assertEquals("400", store.get(KEY).orElseThrow().text());
    }

    @Test
    void countersCount() {
        assertEquals(5, store.increment(KEY, 5));
        assertEquals(4, store.increment(KEY, -1));
        assertEquals(1, store.decrement(KEY, 3));
        assertEquals(0, store.decrement(KEY, 9));
        assertEquals("0", store.get(KEY).orElseThrow().text().strip());
        store.put(KEY, bytes("no number"));
        StrataKvException error = assertThrows(StrataKvException.class, () -> store.increment(KEY, 1));
        assertEquals(StrataKvException.Kind.USAGE, error.kind());
        assertFalse(error.getMessage().isBlank());
    }

    @Test
    void valuesGrowAtBothEnds() {
        assertFalse(store.append(KEY, bytes("x")));
        assertFalse(store.prepend(KEY, bytes("x")));
        store.put(KEY, bytes("b"));
        assertTrue(store.append(KEY, bytes("c")));
        assertTrue(store.prepend(KEY, bytes("a")));
        assertEquals("abc", store.get(KEY).orElseThrow().text());
    }

    @Test
    void rangesAreRemoved() {
        Collection letters = store.collection("letters");
        for (char letter = 'a'; letter <= 'z'; letter++) {
            letters.put(String.valueOf(letter), "");
        }
        letters.put("aa", "");
        assertEquals(27, letters.count());
        assertEquals(2, letters.deletePrefix(bytes("a")));
        assertEquals(2, letters.deleteRange(bytes("c"), bytes("e")));
        assertEquals(1, letters.deleteTo(bytes("c")));
        assertEquals(1, letters.deleteFrom(bytes("z")));
        assertEquals(21, letters.count());
        assertEquals(21, letters.clear());
        assertEquals(0, letters.count());
        letters.close();
    }

    @Test
    void badKeysAreRefused() {
        for (byte[] key : List.of(new byte[0], new byte[65_536])) {
            StrataKvException error = assertThrows(StrataKvException.class, () -> store.put(key, KEY));
            assertEquals(StrataKvException.Kind.USAGE, error.kind());
        }
        byte[] longest = new byte[65_535];
        store.put(longest, KEY);
        assertTrue(store.get(longest).isPresent());
    }
}
