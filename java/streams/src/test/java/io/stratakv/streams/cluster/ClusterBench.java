package io.stratakv.streams.cluster;

import io.stratakv.streams.BenchFigures;
import io.stratakv.streams.BenchFigures.Better;
import io.stratakv.streams.BenchFigures.Notes;
import io.stratakv.streams.BoundedRocksDb;
import io.stratakv.streams.MemoryLimit;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * The application with StrataKV's stores and with RocksDB's, on the same brokers, with the same cap
 * on memory and changelogs of the same records: restoring, going on after `kill -9`, and a windowed
 * aggregation at a steady rate.
 */
@Tag("bench")
@Timeout(7200)
class ClusterBench {
    private static final long RESTORED = Long.getLong("streams.restore", 1_000_000);
    private static final double MINUTES = Double.parseDouble(System.getProperty("streams.minutes", "2"));
    private static final long CAP_MIB = 98;
    private static final long HEAP_MIB = Long.getLong("streams.heap", 512);
    private static final int PARTITIONS = 2;
    private static final int WINDOW_KEYS = 20_000;
    private static final int RATE = 2000;
    private static final int BURST = 20_000;
    private static final Duration PATIENCE = Duration.ofMinutes(30);
    private static final List<String> STORES = List.of("StrataKV", "RocksDB");

    private static Cluster cluster;

    @TempDir
    File folder;

    @BeforeAll
    static void start() throws Exception {
        cluster = Cluster.start();
    }

    @AfterAll
    static void end() throws Exception {
        cluster.close();
    }

    private Map<String, String> begin(String store, String shape, String state) throws Exception {
        String application = "bench-" + shape + "-" + store;
        for (String topic : List.of(BenchApplication.INPUT, BenchApplication.OUTPUT)) {
            cluster.createTopic(CountAndJoin.topic(application, topic), PARTITIONS);
        }
        Map<String, String> configuration = new HashMap<>();
        configuration.put("application.id", application);
        configuration.put("bootstrap.servers", cluster.brokers());
        configuration.put("state.dir", new File(folder, state).getPath());
        configuration.put("consumer.group.instance.id", "one");
        configuration.put("commit.interval.ms", "100");
        configuration.put("stratakv.memory.bytes", "" + (CAP_MIB << 20));
        configuration.put("rocksdb.config.setter", BoundedRocksDb.class.getName());
        configuration.put("bench.store", store);
        configuration.put("bench.shape", shape);
        return configuration;
    }

    private static Child run(Map<String, String> configuration) throws Exception {
        List<String> options = new ArrayList<>(List.of(
                "-Xms" + HEAP_MIB + "m", "-Xmx" + HEAP_MIB + "m",
                "-D" + BoundedRocksDb.MEMORY_BYTES + "=" + (CAP_MIB << 20)));
        String container = System.getProperty(MemoryLimit.CONTAINER);
        if (container != null) {
            options.add("-D" + MemoryLimit.CONTAINER + "=" + container);
        }
        Child child = Child.start(BenchApplication.class, configuration, options);
        child.await("RUNNING", PATIENCE, () -> child.hasSaid("RUNNING"));
        return child;
    }

    @Test
    void restoring() throws Exception {
        for (String store : STORES) {
            BenchFigures.measure("restoring " + RESTORED, store, notes -> restoring(notes, store));
        }
    }

    private void restoring(Notes notes, String store) throws Exception {
        Map<String, String> configuration = begin(store, "counts", "restored-" + store);
        String application = configuration.get("application.id");
        String changelog = CountAndJoin.topic(application, BenchApplication.STATE + "-changelog");
        String what = String.format(java.util.Locale.ROOT, "%,d records", RESTORED);
        cluster.createChangelog(changelog, PARTITIONS);
        cluster.fill(changelog, RESTORED, i -> "key" + i, i -> BenchApplication.value(i));
        String output = CountAndJoin.topic(application, BenchApplication.OUTPUT);
        try (Child child = run(configuration)) {
            notes.add("restoring " + what + ", s", Better.LESS, child.figure("restore-seconds"));
            count(application);
            cluster.awaitRecords(output, BURST, PATIENCE);
            child.kill();
        }
        count(application);
        long begun = System.nanoTime();
        try (Child child = run(configuration)) {
            cluster.awaitRecords(output, 2 * BURST, PATIENCE);
            notes.add(
                    "after `kill -9` with " + what + ": until all is processed, s", Better.LESS,
                    (System.nanoTime() - begun) / 1e9);
            notes.add("after `kill -9` with " + what + ": restored", Better.LESS, child.figure("restored-records"));
            child.end();
            notes.add("resident memory with " + what + ", peak, MiB", Better.LESS, child.figure("peak-mib"));
            notes.add("resident memory with " + what + ", anonymous, MiB", Better.LESS, child.figure("anonymous-mib"));
        }
        cluster.deleteTopics(List.of(
                changelog, output, CountAndJoin.topic(application, BenchApplication.INPUT)));
        delete(new File(folder, "restored-" + store).toPath());
    }

    /** Input for keys that are there. */
    private void count(String application) throws Exception {
        Random random = new Random(7);
        String input = CountAndJoin.topic(application, BenchApplication.INPUT);
        cluster.fill(input, BURST, i -> "key" + random.nextLong(RESTORED), i -> new byte[] {'x'});
    }

    @Test
    void windows() throws Exception {
        for (String store : STORES) {
            BenchFigures.measure("windows, " + MINUTES + " minutes", store, notes -> windows(notes, store));
        }
    }

    private void windows(Notes notes, String store) throws Exception {
        Map<String, String> configuration = begin(store, "windows", "windows-" + store);
        String application = configuration.get("application.id");
        String input = CountAndJoin.topic(application, BenchApplication.INPUT);
        try (Child child = run(configuration)) {
            feed(input);
            child.end();
            notes.add("windows: p99 of a record's processing, µs", Better.LESS, child.figure("process-p99-us"));
            notes.add("windows: p99 of a punctuation, ms", Better.LESS, child.figure("punctuation-p99-ms"));
            notes.add("windows: p50 from a record's time to its processing, ms", Better.LESS, child.figure("lag-p50-ms"));
            notes.add("windows: p99 from a record's time to its processing, ms", Better.LESS, child.figure("lag-p99-ms"));
            notes.add("windows: the longest of these times, ms", Better.LESS, child.figure("lag-max-ms"));
            notes.add(
                    "windows: records in the worst second, of " + RATE, Better.MORE, child.figure("worst-second"));
            notes.add("windows: processor time of a record, µs", Better.LESS, child.figure("cpu-us"));
            notes.add("windows: resident memory, peak, MiB", Better.LESS, child.figure("peak-mib"));
            notes.add("windows: resident memory, anonymous, MiB", Better.LESS, child.figure("anonymous-mib"));
        }
        cluster.deleteTopics(List.of(input, CountAndJoin.topic(application, BenchApplication.OUTPUT)));
        delete(new File(folder, "windows-" + store).toPath());
    }

    /** Records at a steady rate, a fiftieth of a second's at a time. */
    private static void feed(String input) throws Exception {
        Random random = new Random(8);
        long begun = System.nanoTime();
        long ticks = (long) (MINUTES * 60 * 50);
        for (long tick = 0; tick < ticks; tick++) {
            long due = begun + tick * 20_000_000L;
            for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
                LockSupport.parkNanos(left);
            }
            cluster.send(input, RATE / 50, i -> "key" + random.nextInt(WINDOW_KEYS));
        }
    }

    private static void delete(Path folder) throws IOException {
        try (Stream<Path> files = Files.walk(folder)) {
            for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(file);
            }
        }
    }
}
