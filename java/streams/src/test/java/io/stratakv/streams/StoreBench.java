package io.stratakv.streams;

import io.stratakv.streams.BenchFigures.Better;
import java.io.File;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/**
 * Stores beside RocksDB's, one operation after the other, as a task does them: rates by the second
 * of the clock and by the second of processor, of all threads. The stores take turns.
 */
@Tag("bench")
class StoreBench {
    private static final int RECORDS = Integer.getInteger("streams.records", 1_000_000);
    private static final int OPERATIONS = Math.min(RECORDS, 300_000);
    private static final int COMMIT_EVERY = 10_000;
    private static final int VALUE_BYTES = 100;
    private static final int SCANS = Integer.getInteger("streams.scans", 20_000);
    private static final int SCANNED = 100;
    private static final int TASKS = 48;
    private static final int TASK_RECORDS = 10_000;
    private static final int ROUNDS = Integer.getInteger("streams.rounds", 3);
    /** Rounds of several processes have numbers of their own. */
    private static final int FIRST_ROUND = Integer.getInteger("streams.first", 0);
    private static final TopicPartition CHANGELOG = new TopicPartition("changelog", 0);

    @BeforeAll
    static void enter() {
        MemoryLimit.enter();
    }

    @AfterAll
    static void leave() {
        MemoryLimit.leave();
    }

    private static byte[] key(long number) {
        // Spread over the key space, as hashes and words are.
        return ByteBuffer.allocate(16).putLong(number * 0x9E3779B97F4A7C15L).putLong(number).array();
    }

    private static double cpuSeconds() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime() / 1e9;
    }

    private static void measure(String what, BenchFigures.Notes notes, long operations, Runnable run) {
        double cpu = cpuSeconds();
        long begun = System.nanoTime();
        run.run();
        double seconds = (System.nanoTime() - begun) / 1e9;
        notes.add(what + ", a second of processor", Better.MORE, operations / (cpuSeconds() - cpu));
        notes.add(what + ", a second", Better.MORE, operations / seconds);
    }

    private static Properties configuration() {
        Properties configuration = Harness.configuration(false);
        // Both the same: what Kafka gives one RocksDB store, cache and memtables, without a setter.
        configuration.put(StrataKvStores.MEMORY_BYTES_CONFIG, "" + (98L << 20));
        configuration.put(StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG, BoundedRocksDb.class);
        return configuration;
    }

    @Test
    void beside() throws Exception {
        Map<String, Function<String, KeyValueBytesStoreSupplier>> stores = new LinkedHashMap<>();
        stores.put("StrataKV", StrataKvStores::keyValue);
        stores.put("RocksDB", Stores::persistentKeyValueStore);
        Map<String, Function<String, WindowBytesStoreSupplier>> windows = new LinkedHashMap<>();
        Duration hour = Duration.ofHours(1);
        Duration minute = Duration.ofMinutes(1);
        windows.put("StrataKV", name -> StrataKvStores.window(name, hour, minute, false));
        windows.put("RocksDB", name -> Stores.persistentWindowStore(name, hour, minute, false));
        for (int round = FIRST_ROUND; round < FIRST_ROUND + ROUNDS; round++) {
            for (String store : stores.keySet()) {
                BenchFigures.measure("store, round " + round, store, notes -> {
                    Path folder = Files.createTempDirectory("streams-bench");
                    keyValues(notes, stores.get(store), folder.toFile());
                    windows(notes, windows.get(store), folder.toFile());
                    restore(notes, stores.get(store).apply("restored").get(), folder.toFile());
                    SharedStore.delete(folder);
                });
            }
        }
    }

    private void keyValues(BenchFigures.Notes notes, Function<String, KeyValueBytesStoreSupplier> supplier, File folder) {
        KeyValueStore<Bytes, byte[]> store = Harness.open(supplier.apply("kv").get(), folder, 0, configuration());
        byte[] value = new byte[VALUE_BYTES];
        new Random(1).nextBytes(value);
        measure("puts of new keys", notes, RECORDS, () -> {
            for (int i = 0; i < RECORDS; i++) {
                store.put(Bytes.wrap(key(i)), value);
                commitAt(store, i);
            }
            commit(store, RECORDS);
        });
        Random random = new Random(2);
        measure("gets and puts of known keys, as an aggregation", notes, OPERATIONS, () -> {
            for (int i = 0; i < OPERATIONS; i++) {
                Bytes key = Bytes.wrap(key(random.nextInt(RECORDS)));
                if (store.get(key) == null) {
                    throw new IllegalStateException("a record is gone");
                }
                store.put(key, value);
                commitAt(store, i);
            }
            commit(store, OPERATIONS);
        });
        measure("gets", notes, OPERATIONS, () -> {
            for (int i = 0; i < OPERATIONS; i++) {
                if (store.get(Bytes.wrap(key(random.nextInt(RECORDS)))) == null) {
                    throw new IllegalStateException("a record is gone");
                }
            }
        });
        measure("gets of absent keys", notes, OPERATIONS, () -> {
            for (int i = 0; i < OPERATIONS; i++) {
                store.get(Bytes.wrap(key(RECORDS + random.nextInt(RECORDS))));
            }
        });
        measure("ranges of 100 records", notes, SCANS, () -> {
            for (int i = 0; i < SCANS; i++) {
                take(store.range(Bytes.wrap(key(random.nextInt(RECORDS))), null));
            }
        });
        store.close();
        long begun = System.nanoTime();
        Harness.open(supplier.apply("kv").get(), folder, 0, configuration()).close();
        notes.add("opening and closing again, ms", Better.LESS, (System.nanoTime() - begun) / 1e6);
    }

    /** As a changelog is restored: a thousand records at a time, a commit now and then. */
    private void restore(BenchFigures.Notes notes, KeyValueStore<Bytes, byte[]> store, File folder) {
        RecordBatchingStateRestoreCallback callback = Harness.openToRestore(store, folder, configuration());
        byte[] value = new byte[VALUE_BYTES];
        measure("restored records", notes, RECORDS, () -> {
            List<ConsumerRecord<byte[], byte[]>> batch = new ArrayList<>();
            for (int i = 0; i < RECORDS; i++) {
                batch.add(Harness.changelogRecord(key(i), value, i));
                if (batch.size() == 1000) {
                    callback.restoreBatch(batch);
                    batch.clear();
                }
                commitAt(store, i);
            }
            commit(store, RECORDS);
        });
        store.close();
    }

    /** Many tasks: our one store for all, RocksDB's store for each, by Kafka's defaults. */
    @Test
    void tasks() throws Exception {
        BenchFigures.measure("tasks", "StrataKV", notes -> tasks(notes, StrataKvStores::keyValue));
        BenchFigures.measure("tasks", "RocksDB", notes -> tasks(notes, Stores::persistentKeyValueStore));
    }

    private static void tasks(BenchFigures.Notes notes, Function<String, KeyValueBytesStoreSupplier> supplier)
            throws IOException {
        Path folder = Files.createTempDirectory("streams-tasks");
        // Bounded, so many memtables in one buffer are written out over and over, for minutes.
        Properties unbounded = configuration();
        unbounded.remove(StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG);
        long threadsBefore = status("Threads:");
        long begun = System.nanoTime();
        List<KeyValueStore<Bytes, byte[]>> stores = new ArrayList<>();
        for (int task = 0; task < TASKS; task++) {
            stores.add(Harness.open(supplier.apply("store").get(), folder.toFile(), task, unbounded));
        }
        notes.add(TASKS + " stores: opening, ms", Better.LESS, (System.nanoTime() - begun) / 1e6);
        begun = System.nanoTime();
        byte[] value = new byte[VALUE_BYTES];
        for (KeyValueStore<Bytes, byte[]> store : stores) {
            for (int i = 0; i < TASK_RECORDS; i++) {
                store.put(Bytes.wrap(key(i)), value);
            }
            commit(store, 1);
        }
        notes.add(
                TASKS + " stores: writing " + TASK_RECORDS + " records each, s", Better.LESS,
                (System.nanoTime() - begun) / 1e9);
        notes.add(TASKS + " stores: threads", Better.LESS, status("Threads:") - threadsBefore);
        stores.forEach(KeyValueStore::close);
        SharedStore.delete(folder);
    }

    private static long status(String name) throws IOException {
        return Files.readAllLines(Path.of("/proc/self/status")).stream()
                .filter(line -> line.startsWith(name))
                .map(line -> Long.parseLong(line.replaceAll("\\D", "")))
                .findFirst().orElseThrow();
    }

    private static void take(KeyValueIterator<Bytes, byte[]> range) {
        try (range) {
            for (int i = 0; i < SCANNED && range.hasNext(); i++) {
                range.next();
            }
        }
    }

    private static void commitAt(StateStore store, int done) {
        if (done % COMMIT_EVERY == COMMIT_EVERY - 1) {
            commit(store, done);
        }
    }

    private static void commit(StateStore store, long offset) {
        store.commit(Map.of(CHANGELOG, offset));
    }

    /** A count of each key by minutes: reads a window, writes it; now and then looks at the last ones. */
    private void windows(BenchFigures.Notes notes, Function<String, WindowBytesStoreSupplier> supplier, File folder) {
        WindowStore<Bytes, byte[]> store = Harness.open(supplier.apply("windows").get(), folder, 1, configuration());
        Random random = new Random(3);
        int keys = 20_000;
        measure("windowed counts", notes, OPERATIONS, () -> {
            for (int i = 0; i < OPERATIONS; i++) {
                Bytes key = Bytes.wrap(key(random.nextInt(keys)));
                long window = i / 200 * 1000L / 60_000 * 60_000;
                byte[] before = store.fetch(key, window);
                long count = before == null ? 0 : ByteBuffer.wrap(before).getLong();
                store.put(key, ByteBuffer.allocate(8).putLong(count + 1).array(), window);
                commitAt(store, i);
            }
            commit(store, OPERATIONS);
        });
        long end = OPERATIONS / 200 * 1000L;
        measure("fetches of a key's last ten windows", notes, SCANS, () -> {
            for (int i = 0; i < SCANS; i++) {
                try (WindowStoreIterator<byte[]> found =
                        store.fetch(Bytes.wrap(key(random.nextInt(keys))), end - 600_000, end)) {
                    while (found.hasNext()) {
                        found.next();
                    }
                }
            }
        });
        store.close();
    }
}
