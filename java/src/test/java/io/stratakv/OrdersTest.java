package io.stratakv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class OrdersTest {
    @TempDir
    Path folder;

    private Store open(Engine engine, Order order) {
        return Store.open(folder.resolve("data"), EachEngine.options(engine).order("test", order).build());
    }

    private static byte[] bytes(String text) {
        return EachEngine.bytes(text);
    }

    private static List<String> keys(Collection collection, ScanOptions options) {
        try (Scan scan = collection.scan(options)) {
            return scan.stream().map(Entry::keyText).toList();
        }
    }

    /** The last byte first. */
    private static byte[] backwards(byte[] key) {
        byte[] sorted = new byte[key.length];
        for (int i = 0; i < key.length; i++) {
            sorted[i] = key[key.length - 1 - i];
        }
        return sorted;
    }

    @ParameterizedTest
    @EnumSource(value = Engine.class, names = {"SLAB", "HASH"})
    void keysLieInTheirOrder(Engine engine) {
        try (Store store = open(engine, OrdersTest::backwards)) {
            Collection ends = store.collectionInOrder("ends", "test");
            for (String key : List.of("az", "by", "cx", "x".repeat(2000) + "a")) {
                ends.put(key, "");
            }
            // Nothing but the store holds the order.
            for (int i = 0; i < 3; i++) {
                System.gc();
            }
            assertEquals(List.of("x".repeat(2000) + "a", "cx", "by", "az"), keys(ends, ScanOptions.all()));
            assertEquals(List.of("by"), keys(ends, ScanOptions.sortPrefix(bytes("y"))));
            assertEquals(1, ends.deleteRange(bytes("a"), bytes("x")));
            assertEquals(List.of("by", "az"), keys(ends, ScanOptions.all().from(bytes("y"))));
            Collection numbers = store.collectionInOrder("numbers", "stratakv.numeric");
            List.of("10", "9", "-1").forEach(key -> numbers.put(key, ""));
            assertEquals(List.of("-1", "9", "10"), keys(numbers, ScanOptions.all()));
        }
        try (Store store = Store.open(folder.resolve("data"))) {
            StrataKvException error = assertThrows(StrataKvException.class, () -> store.collection("ends"));
            assertTrue(error.getMessage().contains("test"), error.getMessage());
        }
    }

    @Test
    void anExceptionOfAnOrderComesOutOfTheCall() {
        RuntimeException mine = new RuntimeException("mine");
        Order picky = key -> {
            if (key[0] == '!') {
                throw mine;
            }
            return key[0] == '?' ? null : key;
        };
        try (Store store = open(Engine.SLAB, picky)) {
            Collection ordered = store.collectionInOrder("ordered", "test");
            ordered.put("a", "1");
            byte[] bad = bytes("!");
            assertSame(mine, assertThrows(RuntimeException.class, () -> ordered.put(bad, bad)));
            assertSame(mine, assertThrows(RuntimeException.class, () -> ordered.get(bad)));
            assertSame(mine, assertThrows(RuntimeException.class, () -> ordered.scan(ScanOptions.all().from(bad))));
            assertThrows(NullPointerException.class, () -> ordered.put("?", ""));
            assertEquals(List.of("a"), keys(ordered, ScanOptions.all()));
        }
    }

    @Test
    void anOrderCannotCallTheStore() {
        Store[] opened = new Store[1];
        Order calling = key -> {
            if (key[0] == 'g') {
                opened[0].get("x");
            } else if (key[0] == 'c') {
                opened[0].close();
            }
            return key;
        };
        try (Store store = open(Engine.SLAB, calling)) {
            opened[0] = store;
            Collection ordered = store.collectionInOrder("ordered", "test");
            assertThrows(IllegalStateException.class, () -> ordered.put("g", ""));
            assertThrows(IllegalStateException.class, () -> ordered.put("c", ""));
            ordered.put("a", "");
            assertEquals(1, ordered.count());
        }
    }

    /** Records before it come first, and those behind it afterwards. */
    @Test
    void anOrderThatThrowsInAScanCostsOneRecord() {
        IllegalArgumentException mine = new IllegalArgumentException("mine");
        boolean[] throwing = new boolean[1];
        Order order = key -> {
            if (throwing[0] && key[0] == 'c') {
                throw mine;
            }
            return key;
        };
        try (Store store = open(Engine.SLAB, order)) {
            Collection ordered = store.collectionInOrder("ordered", "test");
            List.of("a", "b", "c", "d", "e").forEach(key -> ordered.put(key, key));
            throwing[0] = true;
            try (Scan scan = ordered.scan()) {
                assertEquals("a", scan.next().keyText());
                assertEquals("b", scan.next().keyText());
                assertTrue(scan.hasNext());
                assertSame(mine, assertThrows(IllegalArgumentException.class, scan::next));
                assertEquals("d", scan.next().keyText());
                assertEquals("e", scan.next().keyText());
                assertTrue(!scan.hasNext());
            }
        }
    }

    @Test
    void aSortKeyThatIsTooLongIsRefused() {
        try (Store store = open(Engine.SLAB, key -> new byte[70_000])) {
            Collection ordered = store.collectionInOrder("ordered", "test");
            StrataKvException error = assertThrows(StrataKvException.class, () -> ordered.put("a", ""));
            assertEquals(StrataKvException.Kind.USAGE, error.kind());
        }
    }
}
