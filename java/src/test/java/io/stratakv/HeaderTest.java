package io.stratakv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** What is bound is what the header declares. */
class HeaderTest {
    private static final Path HEADER = Path.of("../crates/c/include/stratakv.h");

    private static String header() throws IOException {
        return Files.readString(HEADER).replaceAll("(?s)/\\*.*?\\*/", "");
    }

    @Test
    void everyFunctionIsBoundWithAsManyArguments() throws IOException {
        Map<String, Integer> declared = new TreeMap<>();
        Matcher functions = Pattern.compile("(?m)^\\w[\\w *]*\\b(stratakv_\\w+)\\(([^)]*)\\);").matcher(header());
        while (functions.find()) {
            String arguments = functions.group(2);
            declared.put(functions.group(1), arguments.equals("void") ? 0 : arguments.split(",").length);
        }
        Map<String, Integer> bound = new TreeMap<>();
        for (Method method : Calls.class.getDeclaredMethods()) {
            if (Modifier.isNative(method.getModifiers())) {
                bound.put(method.getName(), method.getParameterCount());
            }
        }
        assertTrue(declared.size() > 70, declared::toString);
        assertEquals(declared, bound);
    }

    @Test
    void everyFunctionIsUsed() throws IOException {
        Set<String> used = new TreeSet<>();
        try (Stream<Path> sources = Files.walk(Path.of("src/main/java"))) {
            for (Path source : sources.filter(Files::isRegularFile).toList()) {
                Matcher calls = Pattern.compile("Calls(?:\\.|::)(stratakv_\\w+)").matcher(Files.readString(source));
                calls.results().forEach(call -> used.add(call.group(1)));
            }
        }
        for (Method method : Calls.class.getDeclaredMethods()) {
            assertTrue(!Modifier.isNative(method.getModifiers()) || used.contains(method.getName()), method::toString);
        }
    }

    @Test
    void kindsAreTheStatusesOfTheHeader() throws IOException {
        Library.bind();
        Matcher statuses = Pattern.compile("STRATAKV_ERROR_(\\w+) = (\\d+)").matcher(header());
        Map<String, Integer> declared = new TreeMap<>();
        statuses.results().forEach(status -> declared.put(status.group(1), Integer.valueOf(status.group(2))));
        Map<String, Integer> kinds = new TreeMap<>();
        for (StrataKvException.Kind kind : StrataKvException.Kind.values()) {
            kinds.put(kind.name(), kind.status);
            String name = Outcome.text(Calls.stratakv_status_name(kind.status));
            assertEquals(kind.name().toLowerCase(Locale.ROOT), name);
        }
        assertEquals(declared, kinds);
    }

    @Test
    void theLibraryIsOfThisVersion() {
        assertEquals(System.getProperty("stratakv.version"), Store.libraryVersion());
    }
}
