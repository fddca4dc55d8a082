package io.stratakv.streams;

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
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/**
 * Stores beside RocksDB's, one operation after the other, as a task does them: rates by the second
 * of the clock and by the second of processor, of all threads. The stores take turns.
 */
@Tag("bench")
class StoreBench {
    private static final int RECORDS = Integer.getInteger("streams.records", 1_000_000);
    private static final int COMMIT_EVERY = 10_000;
    private static final int VALUE_BYTES = 100;
    private static final int SCANS = 20_000;
    private static final int SCANNED = 100;
    private static final int ROUNDS = 3;
    private static final TopicPartition CHANGELOG = new TopicPartition("changelog", 0);

    private final Map<String, Map<String, List<double[]>>> measured = new LinkedHashMap<>();

    private static byte[] key(long number) {
        // Spread over the key space, as hashes and words are.
        return ByteBuffer.allocate(16).putLong(number * 0x9E3779B97F4A7C15L).putLong(number).array();
    }

    private static double cpuSeconds() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime() / 1e9;
    }

    private void measure(String what, String store, long operations, Runnable run) {
        double cpu = cpuSeconds();
        long begun = System.nanoTime();
        run.run();
        double seconds = (System.nanoTime() - begun) / 1e9;
        double used = cpuSeconds() - cpu;
        measured.computeIfAbsent(what, name -> new LinkedHashMap<>())
                .computeIfAbsent(store, name -> new ArrayList<>())
                .add(new double[] {operations / seconds, operations / used});
        System.out.printf(
                Locale.ROOT, "bench: %s, %s: %.0f a second, %.0f a second of processor%n", what, store,
                operations / seconds, operations / used);
    }

    private static Properties configuration() {
        Properties configuration = Harness.configuration(false);
        // RocksDB's store of Kafka takes 50 MiB of cache and up to three memtables of 16 MiB.
        configuration.put(StrataKvStores.MEMORY_BYTES_CONFIG, "" + (98L << 20));
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
        for (int round = 0; round < ROUNDS; round++) {
            for (String store : stores.keySet()) {
                Path folder = Files.createTempDirectory("streams-bench");
                keyValues(store, stores.get(store), folder.toFile());
                windows(store, windows.get(store), folder.toFile());
                restore(store, stores.get(store).apply("restored").get(), folder.toFile());
                SharedStore.delete(folder);
            }
        }
        table();
    }

    private void keyValues(String name, Function<String, KeyValueBytesStoreSupplier> supplier, File folder) {
        KeyValueStore<Bytes, byte[]> store = Harness.open(supplier.apply("kv").get(), folder, 0, configuration());
        byte[] value = new byte[VALUE_BYTES];
        new Random(1).nextBytes(value);
        measure("puts of new keys", name, RECORDS, () -> {
            for (int i = 0; i < RECORDS; i++) {
                store.put(Bytes.wrap(key(i)), value);
                commitAt(store, i);
            }
            commit(store, RECORDS);
        });
        Random random = new Random(2);
        measure("gets and puts of known keys, as an aggregation", name, RECORDS, () -> {
            for (int i = 0; i < RECORDS; i++) {
                Bytes key = Bytes.wrap(key(random.nextInt(RECORDS)));
                if (store.get(key) == null) {
                    throw new IllegalStateException("a record is gone");
                }
                store.put(key, value);
                commitAt(store, i);
            }
            commit(store, RECORDS);
        });
        measure("gets", name, RECORDS, () -> {
            for (int i = 0; i < RECORDS; i++) {
                if (store.get(Bytes.wrap(key(random.nextInt(RECORDS)))) == null) {
                    throw new IllegalStateException("a record is gone");
                }
            }
        });
        measure("gets of absent keys", name, RECORDS, () -> {
            for (int i = 0; i < RECORDS; i++) {
                store.get(Bytes.wrap(key(RECORDS + random.nextInt(RECORDS))));
            }
        });
        measure("ranges of 100 records", name, SCANS, () -> {
            for (int i = 0; i < SCANS; i++) {
                take(store.range(Bytes.wrap(key(random.nextInt(RECORDS))), null));
            }
        });
        measure("opening again", name, 1, () -> {
            store.close();
            Harness.open(supplier.apply("kv").get(), folder, 0, configuration()).close();
        });
    }

    /** As a changelog is restored: a thousand records at a time, a commit now and then. */
    private void restore(String name, KeyValueStore<Bytes, byte[]> store, File folder) {
        RecordBatchingStateRestoreCallback callback = Harness.openToRestore(store, folder, configuration());
        byte[] value = new byte[VALUE_BYTES];
        measure("restored records", name, RECORDS, () -> {
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

    /** Many tasks: our one store for all, our store for each, RocksDB's store for each. */
    @Test
    void tasks() throws Exception {
        int tasks = 48;
        System.out.println("| 48 stores | opening, ms | resident memory, MiB | threads | writing 10,000 records each, s |");
        System.out.println("|---|--:|--:|--:|--:|");
        for (String how : List.of("one StrataKV store for all", "a StrataKV store for each", "RocksDB")) {
            Path folder = Files.createTempDirectory("streams-tasks");
            long residentBefore = status("VmRSS:");
            long threadsBefore = status("Threads:");
            long begun = System.nanoTime();
            List<KeyValueStore<Bytes, byte[]>> stores = new ArrayList<>();
            for (int task = 0; task < tasks; task++) {
                KeyValueBytesStoreSupplier supplier = how.equals("RocksDB")
                        ? Stores.persistentKeyValueStore("store")
                        : StrataKvStores.keyValue("store");
                boolean isApart = how.startsWith("a ");
                File place = isApart ? folder.resolve("" + task).toFile() : folder.toFile();
                Properties configuration = configuration();
                if (isApart) {
                    configuration.put(StrataKvStores.MEMORY_BYTES_CONFIG, "" + (32L << 20));
                }
                stores.add(Harness.open(supplier.get(), place, task, configuration));
            }
            double opened = (System.nanoTime() - begun) / 1e6;
            begun = System.nanoTime();
            byte[] value = new byte[VALUE_BYTES];
            for (KeyValueStore<Bytes, byte[]> store : stores) {
                for (int i = 0; i < 10_000; i++) {
                    store.put(Bytes.wrap(key(i)), value);
                }
                commit(store, 1);
            }
            double written = (System.nanoTime() - begun) / 1e9;
            System.gc();
            System.out.printf(
                    Locale.ROOT, "| %s | %,.0f | %,d | %d | %.1f |%n", how, opened,
                    (status("VmRSS:") - residentBefore) / 1024, status("Threads:") - threadsBefore, written);
            stores.forEach(KeyValueStore::close);
            SharedStore.delete(folder);
        }
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
    private void windows(String name, Function<String, WindowBytesStoreSupplier> supplier, File folder) {
        WindowStore<Bytes, byte[]> store = Harness.open(supplier.apply("windows").get(), folder, 1, configuration());
        Random random = new Random(3);
        int keys = 20_000;
        measure("windowed counts", name, RECORDS, () -> {
            for (int i = 0; i < RECORDS; i++) {
                Bytes key = Bytes.wrap(key(random.nextInt(keys)));
                long window = i / 200 * 1000L / 60_000 * 60_000;
                byte[] before = store.fetch(key, window);
                long count = before == null ? 0 : ByteBuffer.wrap(before).getLong();
                store.put(key, ByteBuffer.allocate(8).putLong(count + 1).array(), window);
                commitAt(store, i);
            }
            commit(store, RECORDS);
        });
        long end = RECORDS / 200 * 1000L;
        measure("fetches of a key's last ten windows", name, SCANS, () -> {
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

    private void table() {
        System.out.println("| operations | StrataKV | RocksDB | ratio | StrataKV by processor | RocksDB | ratio |");
        System.out.println("|---|--:|--:|--:|--:|--:|--:|");
        measured.forEach((what, stores) -> {
            double[] ours = medians(stores.get("StrataKV"));
            double[] theirs = medians(stores.get("RocksDB"));
            System.out.printf(
                    Locale.ROOT, "| %s | %,.0f | %,.0f | %.2f | %,.0f | %,.0f | %.2f |%n", what, ours[0], theirs[0],
                    ours[0] / theirs[0], ours[1], theirs[1], ours[1] / theirs[1]);
        });
    }

    private static double[] medians(List<double[]> rounds) {
        double[] medians = new double[2];
        for (int i = 0; i < medians.length; i++) {
            int at = i;
            double[] sorted = rounds.stream().mapToDouble(round -> round[at]).sorted().toArray();
            medians[i] = sorted[sorted.length / 2];
        }
        return medians;
    }
}
