package io.stratakv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class JsonTest {
    @Test
    void numbersAndStringsAreRead() {
        assertEquals(Map.of(), Json.numbers(" { } "));
        assertEquals(Map.of("a", 1L, "b c", -2L, "max", -1L),
                Json.numbers("{\"a\":1, \"b c\" : -2,\"max\":18446744073709551615}"));
        assertEquals(List.of(), Json.strings("[]"));
        assertEquals(List.of("", "a\"\\/\b\f\n\r\t", "\u2603\ud83d\ude00"),
                Json.strings("[\"\", \"a\\\"\\\\\\/\\b\\f\\n\\r\\t\",\"\\u2603\\ud83d\\ude00\"]"));
    }

    @Test
    void whatIsNoneOfThemIsRefused() {
        for (String bad : List.of("", "{", "[\"a\"", "[\"a", "[1]", "{\"a\":}", "{\"a\":1}x", "[\"a\",]", "{\"a\":1.5}")) {
            assertThrows(IllegalArgumentException.class, () -> {
                Json.numbers(bad);
                Json.strings(bad);
            }, bad);
        }
        assertThrows(IllegalArgumentException.class, () -> Json.strings("[\"a\\"));
    }
}
