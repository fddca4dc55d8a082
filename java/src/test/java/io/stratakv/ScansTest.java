package io.stratakv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayList;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

@ParameterizedClass
@EnumSource(value = Engine.class, names = {"SLAB", "HASH"})
class ScansTest extends EachEngine {
    private Collection fruit;

    @BeforeEach
    void fill() {
        fruit = store.collection("fruit");
        for (String name : List.of("apple", "apricot", "banana", "cherry", "date")) {
            fruit.put(name, "a " + name);
        }
    }

    private List<String> keys(ScanOptions options) {
        try (Scan scan = fruit.scan(options)) {
            List<String> keys = new ArrayList<>();
            for (Entry entry : scan) {
                keys.add(entry.keyText());
            }
            return keys;
        }
    }

    @Test
    void boundsAreKept() {
        ScanOptions all = ScanOptions.all();
        assertEquals(List.of("apple", "apricot", "banana", "cherry", "date"), keys(all));
        assertEquals(List.of("date", "cherry", "banana", "apricot", "apple"), keys(all.reverse()));
        assertEquals(List.of("apricot", "banana"), keys(ScanOptions.range(bytes("apricot"), bytes("cherry"))));
        assertEquals(List.of("banana", "cherry"), keys(all.after(bytes("apricot")).through(bytes("cherry"))));
        assertEquals(List.of("cherry", "date"), keys(all.from(bytes("c"))));
        assertEquals(List.of("apple"), keys(all.to(bytes("apricot"))));
        assertEquals(List.of("apricot", "apple"), keys(ScanOptions.prefix(bytes("ap")).reverse()));
        assertEquals(List.of("date"), keys(ScanOptions.sortPrefix(bytes("da"))));
        assertEquals(5, keys(ScanOptions.prefix(new byte[0])).size());
        assertEquals(List.of(), keys(ScanOptions.prefix(bytes("zebra"))));
        ScanOptions both = ScanOptions.prefix(bytes("a")).from(bytes("b"));
        StrataKvException error = assertThrows(StrataKvException.class, () -> fruit.scan(both));
        assertEquals(StrataKvException.Kind.USAGE, error.kind());
    }

    @Test
    void recordsComeWithTheirKeys() {
        try (Scan scan = fruit.scan()) {
            Entry first = scan.next();
            assertEquals(fruit.get("apple").orElseThrow(), first.record());
            try (Stream<Entry> rest = scan.stream()) {
                assertEquals(List.of("a apricot", "a banana", "a cherry", "a date"),
                        rest.map(entry -> entry.record().text()).toList());
            }
            assertThrows(IllegalStateException.class, scan::hasNext, "the stream closed it");
        }
        try (Scan scan = fruit.scan(ScanOptions.all().keysOnly())) {
            scan.forEachRemaining(entry -> assertEquals(0, entry.record().value().length));
            assertFalse(scan.hasNext());
            assertThrows(NoSuchElementException.class, scan::next);
        }
    }

    @Test
    void aSnapshotStaysAsItWas() {
        if (engine == Engine.SLAB) {
            StrataKvException error = assertThrows(StrataKvException.class, store::snapshot);
            assertEquals(StrataKvException.Kind.UNSUPPORTED, error.kind());
            return;
        }
        try (Snapshot snapshot = store.snapshot()) {
            fruit.put("apple", "eaten");
            fruit.delete("date");
            fruit.put("elder", "new");
            assertEquals("a apple", snapshot.get(fruit, bytes("apple")).orElseThrow().text());
            assertFalse(snapshot.get(fruit, bytes("elder")).isPresent());
            try (Scan scan = snapshot.scan(fruit, ScanOptions.all())) {
                assertEquals(List.of("a apple", "a apricot", "a banana", "a cherry", "a date"),
                        scan.stream().map(entry -> entry.record().text()).toList());
            }
            assertSame(store, snapshot.store());
        }
        Snapshot closed = store.snapshot();
        closed.close();
        assertThrows(IllegalStateException.class, () -> closed.get(fruit, bytes("apple")));
    }

    /** It said that there was one more, and threw that away with each call of next: a loop that went on behind damage never ended. */
    @Test
    void aRefusedScanSaysSoWhenItIsAskedForMore() {
        if (engine == Engine.SLAB) {
            return; // All its keys are in order.
        }
        store.put("a", "1");
        try (Scan scan = store.scan()) {
            StrataKvException error = assertThrows(StrataKvException.class, scan::hasNext);
            assertEquals(StrataKvException.Kind.UNSUPPORTED, error.kind());
            assertFalse(scan.hasNext());
            assertThrows(NoSuchElementException.class, scan::next);
        }
    }

    @Test
    void aScanOutlivesItsHandleOfTheCollection() {
        try (Scan scan = fruit.scan()) {
            fruit.close();
            assertEquals(5, scan.stream().count());
        }
    }

    @Test
    void manyRecordsComeInOrder() {
        Collection many = store.collection("many");
        try (WriteBatch batch = new WriteBatch()) {
            for (int i = 0; i < 5000; i++) {
                batch.put(many, bytes(String.format("%06d", i)), new byte[100]);
            }
            store.write(batch);
        }
        try (Scan scan = many.scan()) {
            int expected = 0;
            while (scan.hasNext()) {
                assertEquals(String.format("%06d", expected++), scan.next().keyText());
            }
            assertEquals(5000, expected);
        }
    }
}
