package io.stratakv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.stream.IntStream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

@ParameterizedClass
@EnumSource(value = Engine.class, names = {"SLAB", "HASH"})
class ListsTest extends EachEngine {
    private StoredList list;

    @BeforeEach
    void fill() {
        list = store.list("jobs");
        list.pushAll(End.BACK, List.of(bytes("b"), bytes("c")));
        list.push(End.FRONT, bytes("a"));
        list.push(End.BACK, bytes("d"));
    }

    private static List<String> texts(Elements elements) {
        try (elements) {
            List<String> texts = new ArrayList<>();
            elements.forEachRemaining(element -> texts.add(element.text()));
            return texts;
        }
    }

    private List<String> all() {
        return texts(list.elements());
    }

    @Test
    void elementsAreInTheirOrder() {
        assertEquals(4, list.count());
        assertEquals(List.of("a", "b", "c", "d"), all());
        assertEquals(List.of("d", "c", "b", "a"), texts(list.elementsFromBack()));
        assertEquals(Optional.of("b"), list.get(1).map(EachEngine::text));
        assertEquals(Optional.of("d"), list.get(-1).map(EachEngine::text));
        assertTrue(list.get(4).isEmpty());
        try (Elements elements = list.elements()) {
            elements.forEach(element -> assertTrue(list.at(element.position()).isPresent()));
            assertThrows(NoSuchElementException.class, elements::next);
        }
    }

    @Test
    void endsAreTaken() {
        assertEquals("a", text(list.pop(End.FRONT).orElseThrow()));
        assertEquals("d", text(list.pop(End.BACK).orElseThrow()));
        assertEquals(List.of("c", "b"), list.popMany(End.BACK, 9).stream().map(EachEngine::text).toList());
        assertTrue(list.pop(End.FRONT).isEmpty());
        assertEquals(List.of(), list.popMany(End.FRONT, Integer.MAX_VALUE));
        assertThrows(IllegalArgumentException.class, () -> list.popMany(End.FRONT, -1));
        list.pushAll(End.BACK, IntStream.range(0, 2000).mapToObj(i -> bytes("" + i)).toList());
        assertEquals(2000, list.popMany(End.FRONT, Integer.MAX_VALUE).size());
    }

    @Test
    void elementsMoveBetweenLists() {
        StoredList done = store.list("done");
        assertEquals("a", text(list.moveTo(End.FRONT, done, End.BACK).orElseThrow()));
        assertEquals("b", text(list.moveTo(End.FRONT, list, End.BACK).orElseThrow()));
        assertEquals(List.of("c", "d", "b"), all());
        assertEquals(List.of("a"), texts(done.elements()));
        done.pop(End.FRONT);
        assertTrue(done.moveTo(End.FRONT, list, End.BACK).isEmpty());
    }

    @Test
    void positionsNameWhatWasSeen() {
        Position second = list.position(1).orElseThrow();
        assertEquals("b", text(list.at(second).orElseThrow()));
        assertTrue(list.insertBefore(second, bytes("ab")));
        assertTrue(list.insertAfter(second, bytes("bc")));
        assertTrue(list.insert(0, bytes("0")));
        assertFalse(list.insert(99, bytes("x")));
        assertEquals(List.of("0", "a", "ab", "b", "bc", "c", "d"), all());
        assertTrue(list.replace(second, bytes("B")));
        assertTrue(list.at(second).isEmpty());
        assertFalse(list.replace(second, bytes("x")));
        assertFalse(list.erase(second));
        assertFalse(list.insertBefore(second, bytes("x")) || list.insertAfter(second, bytes("x")));
        Position last = list.position(-1).orElseThrow();
        assertTrue(list.erase(last));
        assertEquals(List.of("0", "a", "ab", "B", "bc", "c"), all());
        assertTrue(list.position(6).isEmpty());
        last.close();
        assertThrows(IllegalStateException.class, () -> list.at(last));
    }

    @Test
    void namesStandForOneKind() {
        assertEquals(Optional.of(CollectionKind.LIST), store.kindOf("jobs"));
        store.collection("table").close();
        assertEquals(Optional.of(CollectionKind.KEY_VALUE), store.kindOf("table"));
        assertEquals(Optional.empty(), store.kindOf("none"));
        assertEquals(List.of("jobs", "table"), store.collectionNames().stream().sorted().toList());
        assertTrue(store.existingList("jobs").isPresent());
        assertTrue(store.existingList("none").isEmpty());
        assertTrue(store.existingCollection("table").isPresent());
        assertTrue(store.existingCollection("none").isEmpty());
        assertThrows(StrataKvException.class, () -> store.collection("jobs"));
        assertThrows(StrataKvException.class, () -> store.list("table"));
        assertTrue(store.dropCollection("jobs"));
        assertFalse(store.dropCollection("jobs"));
    }
}
