package io.stratakv.streams.cluster;

import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * The application with StrataKV's stores and with RocksDB's, on the same brokers: how long a
 * backlog takes, how long it is until the first output after `kill -9`, and how long a restore of
 * lost state takes. The two take turns.
 */
@Tag("bench")
@Timeout(3600)
class ClusterBench {
    private static final int WORDS = Integer.getInteger("streams.words", 200_000);
    private static final int KEYS = 100_000;
    private static final int ROUNDS = 3;
    private static final Duration PATIENCE = Duration.ofMinutes(5);
    private static final Map<String, String> SUPPLIERS = Map.of(
            "StrataKV", "io.stratakv.streams.StrataKvDslStoreSuppliers",
            "RocksDB", "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$RocksDBDslStoreSuppliers");

    @TempDir
    File folder;

    private Cluster cluster;
    private String application;

    @Test
    void beside() throws Exception {
        Map<String, List<double[]>> measured = new HashMap<>();
        cluster = Cluster.start();
        try {
            for (int round = 0; round < ROUNDS; round++) {
                for (String store : List.of("StrataKV", "RocksDB")) {
                    measured.computeIfAbsent(store, name -> new ArrayList<>()).add(measure(store, round));
                }
            }
        } finally {
            cluster.close();
        }
        String[] what = {"backlog of " + WORDS + " words, seconds", "first output after kill -9, seconds",
            "records restored after kill -9", "first output after lost state, seconds"};
        System.out.println("| | StrataKV | RocksDB |");
        System.out.println("|---|--:|--:|");
        for (int i = 0; i < what.length; i++) {
            System.out.printf(
                    Locale.ROOT, "| %s | %.1f | %.1f |%n", what[i], median(measured.get("StrataKV"), i),
                    median(measured.get("RocksDB"), i));
        }
    }

    private static double median(List<double[]> rounds, int at) {
        double[] sorted = rounds.stream().mapToDouble(round -> round[at]).sorted().toArray();
        return sorted[sorted.length / 2];
    }

    private String topic(String topic) {
        return CountAndJoin.topic(application, topic);
    }

    private double[] measure(String store, int round) throws Exception {
        application = "bench-" + store + round;
        for (String topic : List.of(
                CountAndJoin.WORDS, CountAndJoin.COUNTS, CountAndJoin.LEFT, CountAndJoin.RIGHT, CountAndJoin.JOINED)) {
            cluster.createTopic(topic(topic), 2);
        }
        Map<String, String> configuration = new HashMap<>();
        configuration.put("application.id", application);
        configuration.put("bootstrap.servers", cluster.brokers());
        configuration.put("state.dir", new File(folder, store + round).getPath());
        configuration.put("consumer.group.instance.id", "one");
        configuration.put("dsl.store.suppliers.class", SUPPLIERS.get(store));
        configuration.put("commit.interval.ms", "100");
        Random random = new Random(5);
        produce(WORDS, random);
        double[] figures = new double[4];
        long begun = System.nanoTime();
        try (Child child = Child.start(CountAndJoin.class, configuration)) {
            cluster.awaitRecords(topic(CountAndJoin.COUNTS), WORDS, PATIENCE);
            figures[0] = (System.nanoTime() - begun) / 1e9;
            child.kill();
        }
        produce(100, random);
        begun = System.nanoTime();
        try (Child child = Child.start(CountAndJoin.class, configuration)) {
            cluster.awaitRecords(topic(CountAndJoin.COUNTS), WORDS + 100, PATIENCE);
            figures[1] = (System.nanoTime() - begun) / 1e9;
            figures[2] = child.lines().stream()
                    .filter(line -> line.startsWith("RESTORED "))
                    .mapToLong(line -> Long.parseLong(line.substring(line.lastIndexOf(' ') + 1)))
                    .sum();
            child.end();
        }
        configuration.put("state.dir", new File(folder, store + round + "-new").getPath());
        produce(100, random);
        begun = System.nanoTime();
        try (Child child = Child.start(CountAndJoin.class, configuration)) {
            cluster.awaitRecords(topic(CountAndJoin.COUNTS), WORDS + 200, PATIENCE);
            figures[3] = (System.nanoTime() - begun) / 1e9;
            child.end();
        }
        System.out.printf(
                Locale.ROOT, "bench: %s: %.1f s, %.1f s with %.0f records, %.1f s%n", store, figures[0], figures[1],
                figures[2], figures[3]);
        return figures;
    }

    private void produce(int words, Random random) throws Exception {
        List<Cluster.Message> messages = new ArrayList<>();
        for (int i = 0; i < words; i++) {
            messages.add(new Cluster.Message(topic(CountAndJoin.WORDS), "word" + random.nextInt(KEYS), "" + i));
        }
        cluster.produce(messages);
    }
}
