package io.stratakv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.stratakv.StrataKvException.Kind;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

@ParameterizedClass
@EnumSource(value = Engine.class, names = {"SLAB", "HASH"})
class StoreTest extends EachEngine {
    private static Kind kind(org.junit.jupiter.api.function.Executable call) {
        StrataKvException error = assertThrows(StrataKvException.class, call);
        assertFalse(error.getMessage().isBlank());
        return error.kind();
    }

    private Options options() {
        return options(engine).build();
    }

    @Test
    void aStoreIsThereWhenItIsOpenedAgain() {
        store.put("k", "v");
        store.sync();
        store.close();
        store = Store.open(folder.resolve("data"));
        assertEquals(engine, store.engine());
        assertEquals("v", store.get("k").orElseThrow().text());
        assertSame(store, store.store());
    }

    @Test
    void kindsOfErrorsAreTold() {
        Path data = folder.resolve("data");
        assertEquals(Kind.LOCKED, kind(() -> Store.open(data)));
        assertEquals(Kind.NOT_FOUND,
                kind(() -> Store.open(folder.resolve("none"), Options.builder().create(false).build())));
        assertEquals(Kind.USAGE, kind(() -> Store.open(folder.resolve("none"), Options.builder().shards(0).build())));
        assertEquals(Kind.USAGE,
                kind(() -> Store.open(folder.resolve("none"), Options.builder().memoryBytes(-1).build())));
        store.close();
        Options other = Options.builder().engine(engine == Engine.SLAB ? Engine.HASH : Engine.SLAB).build();
        assertThrows(StrataKvException.class, () -> Store.open(data, other));
        assertThrows(StrataKvException.class, () -> Store.open(data, Options.builder().createNew(true).build()));
        try (Store readOnly = Store.open(data, Options.builder().readOnly(true).build())) {
            assertEquals(Optional.empty(), readOnly.get("k"));
            assertThrows(StrataKvException.class, () -> readOnly.put("k", "v"));
        }
    }

    @Test
    void everyOptionIsTaken() throws IOException {
        Path second = Files.createDirectory(folder.resolve("second"));
        Options slab = Options.builder().create(true).createNew(true).readOnly(false).engine(Engine.SLAB)
                .durability(Durability.PROCESS_CRASH).memoryBytes(16 << 20).capacityBytes(1L << 30).directory(second)
                .placement(Placement.PACKED).io(IoBackend.BLOCKING).shards(2).depth(16).cores(1).build();
        try (Store spread = Store.open(folder.resolve("first"), slab)) {
            spread.put("k", "v");
        }
        try (Stream<Path> files = Files.list(second)) {
            assertTrue(files.findAny().isPresent(), "a shard lies in the second directory");
        }
        Path region = folder.resolve("region");
        Options hash = Options.builder().engine(Engine.HASH).durability(Durability.PROCESS_CRASH)
                .regionBytes(4 << 20).regionPath(region).build();
        try (Store small = Store.open(folder.resolve("hash"), hash)) {
            small.put("k", "v");
        }
        assertEquals(4 << 20, Files.size(region));
        Options device = Options.builder().device(folder.resolve("no-device")).build();
        assertThrows(StrataKvException.class, () -> Store.open(folder.resolve("raw"), device));
        for (Engine each : Engine.values()) {
            Options cache = Options.builder().engine(each).durability(Durability.MEMORY).regionBytes(1 << 20).build();
            assertThrows(StrataKvException.class, () -> Store.open(folder.resolve("refused"), cache), each.toString());
        }
    }

    @Test
    void everyEngineOpens() {
        for (Engine each : Engine.values()) {
            Options.Builder options = Options.builder().engine(each).memoryBytes(32 << 20);
            options.durability(each == Engine.TIER ? Durability.MEMORY : Durability.PROCESS_CRASH);
            if (each == Engine.HASH || each == Engine.MATRIX) {
                options.regionBytes(16 << 20);
            }
            try (Store opened = Store.open(folder.resolve("of-" + each), options.build())) {
                assertEquals(each, opened.engine());
                opened.put("k", "v");
                assertEquals("v", opened.get("k").orElseThrow().text());
            }
        }
    }

    @Test
    void pathsAndNamesAreOfAnyCharacters() {
        String name = "größe %41 ☃ \"\\\n";
        Path odd = folder.resolve("a %41 b+c#d?");
        try (Store opened = Store.open(odd, options())) {
            Collection collection = opened.collection(name);
            collection.put("k", "v");
            opened.list("list");
            assertEquals(List.of(name, "list").stream().sorted().toList(),
                    opened.collectionNames().stream().sorted().toList());
            assertThrows(IllegalArgumentException.class, () -> opened.collection("a\0b"));
        }
        assertTrue(Files.isDirectory(odd));
    }

    @Test
    void statsAreNumbers() {
        store.put("k", "v");
        store.get("k");
        Map<String, Long> stats = store.stats();
        assertTrue(stats.size() > 5, stats::toString);
        assertTrue(stats.values().stream().anyMatch(value -> value > 0), stats::toString);
    }

    @Test
    void collectionsExpire() {
        store.collection("c").put("k", "v");
        assertEquals(Optional.of(Instant.MAX), store.collectionExpiry("c"));
        Instant later = Instant.ofEpochMilli(store.now().plusSeconds(500).toEpochMilli());
        assertTrue(store.expireCollection("c", later));
        assertEquals(Optional.of(later), store.collectionExpiry("c"));
        assertTrue(store.expireCollection("c", Instant.MAX));
        assertEquals(Optional.of(Instant.MAX), store.collectionExpiry("c"));
        assertTrue(store.expireCollection("c", Instant.EPOCH));
        assertEquals(Optional.empty(), store.collectionExpiry("c"));
        assertFalse(store.expireCollection("c", later));
        assertEquals(List.of(), store.collectionNames());
    }

    @Test
    void theClockIsTheSystems() {
        long apart = Math.abs(store.now().toEpochMilli() - System.currentTimeMillis());
        assertTrue(apart < 60_000, () -> apart + " ms");
    }

    @Test
    void aBackupIsRestored() {
        Collection collection = store.collection("c");
        for (int i = 0; i < 100; i++) {
            collection.put("k" + i, "v" + i);
        }
        Path backup = folder.resolve("backup");
        long records = store.backup(backup);
        assertTrue(records >= 100);
        assertThrows(StrataKvException.class, () -> store.backup(backup));
        Path restored = folder.resolve("restored");
        assertEquals(records, Store.restore(backup, restored, options()));
        assertEquals(records, Store.restore(backup, folder.resolve("as-slab")));
        assertThrows(StrataKvException.class, () -> Store.restore(backup, restored, options()));
        assertTrue(Store.check(restored) >= 100);
        try (Store copy = Store.open(restored)) {
            assertEquals("v99", copy.collection("c").get("k99").orElseThrow().text());
            assertEquals(Kind.LOCKED, kind(() -> Store.check(restored)));
        }
    }

    @Test
    void damageIsTold() throws IOException {
        byte[] value = bytes("to be damaged ".repeat(20));
        store.put(bytes("k"), value);
        Path data = folder.resolve("data");
        store.close();
        assertEquals(1, Store.check(data));
        assertTrue(damage(data, value) > 0, "the value lies somewhere as it is");
        assertEquals(Kind.CORRUPT, kind(() -> Store.check(data)));
        store = Store.open(data);
        assertEquals(Kind.CORRUPT, kind(() -> store.get("k")));
    }

    /** Turns a bit of the value wherever it lies; how often that was. */
    private static int damage(Path data, byte[] value) throws IOException {
        int turned = 0;
        try (Stream<Path> all = Files.walk(data)) {
            for (Path path : all.filter(Files::isRegularFile).toList()) {
                String bytes = new String(Files.readAllBytes(path), java.nio.charset.StandardCharsets.ISO_8859_1);
                String wanted = new String(value, java.nio.charset.StandardCharsets.ISO_8859_1);
                for (int at = bytes.indexOf(wanted); at >= 0; at = bytes.indexOf(wanted, at + 1)) {
                    try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw")) {
                        file.seek(at + 5);
                        file.write(value[5] ^ 1);
                    }
                    turned++;
                }
            }
        }
        return turned;
    }
}
