package io.stratakv.streams.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * Exactly-once processing on three brokers, while instances of the application die. Each input
 * makes one output, so the outputs tell what was lost and what was done twice.
 */
@Tag("cluster")
@Timeout(3600)
class ClusterTest {
    private static final int PARTITIONS = 2;
    private static final int WORDS = 50;
    private static final Duration PATIENCE = Duration.ofSeconds(120);

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

    /** What was put in, and so what must come out. */
    private static final class Model {
        final Map<String, Integer> counts = new HashMap<>();
        int joins;
        int inputs;
    }

    private final Model model = new Model();
    private String application;

    private Map<String, String> configuration(String instance) {
        Map<String, String> configuration = new HashMap<>();
        configuration.put("application.id", application);
        configuration.put("bootstrap.servers", cluster.brokers());
        configuration.put("state.dir", new File(folder, instance).getPath());
        configuration.put("consumer.group.instance.id", instance);
        return configuration;
    }

    private String topic(String topic) {
        return CountAndJoin.topic(application, topic);
    }

    private void begin(String name) throws ExecutionException, InterruptedException {
        application = name;
        for (String topic : List.of(
                CountAndJoin.WORDS, CountAndJoin.COUNTS, CountAndJoin.LEFT, CountAndJoin.RIGHT, CountAndJoin.JOINED)) {
            cluster.createTopic(topic(topic), PARTITIONS);
        }
    }

    private void produce(int records, Random random) throws ExecutionException, InterruptedException {
        List<Cluster.Message> messages = new ArrayList<>();
        for (int i = 0; i < records; i++) {
            String word = "word" + random.nextInt(WORDS);
            model.counts.merge(word, 1, Integer::sum);
            messages.add(new Cluster.Message(topic(CountAndJoin.WORDS), word, "" + model.inputs));
            String pair = "pair" + model.joins++;
            messages.add(new Cluster.Message(topic(CountAndJoin.LEFT), pair, "l"));
            messages.add(new Cluster.Message(topic(CountAndJoin.RIGHT), pair, "r"));
            model.inputs += 3;
        }
        cluster.produce(messages);
    }

    /** What is committed of both outputs, by partition. */
    private List<Long> committed() {
        List<Long> all = new ArrayList<>(cluster.committed(topic(CountAndJoin.COUNTS)));
        all.addAll(cluster.committed(topic(CountAndJoin.JOINED)));
        return all;
    }

    private boolean hasGrown(List<Long> before) {
        List<Long> now = committed();
        return IntStream.range(0, now.size()).allMatch(at -> now.get(at) > before.get(at));
    }

    /** What came out beside what should have. */
    private record Judgement(int records, int lost, int doubled) {}

    private Judgement judge() {
        Map<String, List<Integer>> counts = new HashMap<>();
        List<ConsumerRecord<String, String>> counted =
                cluster.consume(topic(CountAndJoin.COUNTS), model.inputs / 3, PATIENCE);
        counted.forEach(record ->
                counts.computeIfAbsent(record.key(), key -> new ArrayList<>()).add(Integer.valueOf(record.value())));
        int lost = 0;
        int doubled = 0;
        for (Map.Entry<String, Integer> expected : model.counts.entrySet()) {
            List<Integer> seen = counts.getOrDefault(expected.getKey(), List.of());
            for (int count = 1; count <= expected.getValue(); count++) {
                int times = Collections.frequency(seen, count);
                lost += times == 0 ? 1 : 0;
                doubled += Math.max(0, times - 1);
            }
            doubled += (int) seen.stream().filter(count -> count > expected.getValue()).count();
        }
        Map<String, Integer> joins = new HashMap<>();
        List<ConsumerRecord<String, String>> joined = cluster.consume(topic(CountAndJoin.JOINED), model.joins, PATIENCE);
        joined.forEach(record -> joins.merge(record.key(), 1, Integer::sum));
        for (int pair = 0; pair < model.joins; pair++) {
            int times = joins.getOrDefault("pair" + pair, 0);
            lost += times == 0 ? 1 : 0;
            doubled += Math.max(0, times - 1);
        }
        return new Judgement(counted.size() + joined.size(), lost, doubled);
    }

    private static void await(String what, Child child, BooleanSupplier holds)
            throws InterruptedException {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (!holds.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, () -> "waited in vain for " + what + ": " + child.lines());
            assertTrue(child.isAlive(), () -> "the application ended: " + child.lines());
            Thread.sleep(20);
        }
    }

    @Test
    void nothingIsLostOrDoneTwiceWhileTheApplicationIsKilled() throws Exception {
        int kills = Integer.getInteger("streams.kills", 20);
        Random random = new Random(71);
        begin("killed");
        produce(2000, random);
        int resumed = 0;
        int fromBeginning = 0;
        for (int kill = 0; kill < kills; kill++) {
            try (Child child = Child.start(CountAndJoin.class, configuration("one"))) {
                List<Long> before = committed();
                for (int burst = 0; burst < 3; burst++) {
                    produce(100, random);
                }
                await("commits", child, () -> hasGrown(before));
                // Anywhere in a commit interval, and in the commits themselves.
                produce(100, random);
                Thread.sleep(random.nextInt(200));
                child.kill();
                for (String line : child.lines()) {
                    fromBeginning += kill > 0 && line.matches("RESTORE .* from 0 to .*") ? 1 : 0;
                    resumed += kill > 0 && line.matches("RESTORE .* from [1-9].*") ? 1 : 0;
                }
            }
        }
        Judgement judgement;
        try (Child child = Child.start(CountAndJoin.class, configuration("one"))) {
            await("RUNNING", child, () -> child.hasSaid("RUNNING"));
            judgement = judge();
            child.end();
        }
        System.out.println("streams: " + kills + " kills, " + model.inputs + " inputs, " + judgement
                + ", stores that went on from a committed offset " + resumed + ", from the beginning " + fromBeginning);
        assertEquals(new Judgement(model.inputs / 3 + model.joins, 0, 0), judgement);
        assertEquals(0, fromBeginning, "a killed instance goes on from its committed offset");
    }

    @Test
    void aStandbyTakesOver() throws Exception {
        Random random = new Random(72);
        begin("standby");
        produce(2000, random);
        Map<String, String> one = configuration("one");
        Map<String, String> two = configuration("two");
        one.put("num.standby.replicas", "1");
        two.put("num.standby.replicas", "1");
        Judgement judgement;
        try (Child first = Child.start(CountAndJoin.class, one); Child second = Child.start(CountAndJoin.class, two)) {
            await("RUNNING", first, () -> first.hasSaid("RUNNING"));
            await("RUNNING", second, () -> second.hasSaid("RUNNING"));
            for (int round = 0; round < 10; round++) {
                produce(200, random);
                Thread.sleep(300);
            }
            first.kill();
            produce(1000, random);
            judgement = judge();
            second.end();
        }
        System.out.println("streams: standby takeover: " + model.inputs + " inputs, " + judgement);
        assertEquals(new Judgement(model.inputs / 3 + model.joins, 0, 0), judgement);
    }

    @Test
    void instancesComeAndGo() throws Exception {
        Random random = new Random(73);
        begin("rebalanced");
        produce(500, random);
        Judgement judgement;
        try (Child first = Child.start(CountAndJoin.class, configuration("one"))) {
            await("RUNNING", first, () -> first.hasSaid("RUNNING"));
            for (int round = 0; round < 3; round++) {
                try (Child guest = Child.start(CountAndJoin.class, configuration("guest"))) {
                    await("RUNNING", guest, () -> guest.hasSaid("RUNNING"));
                    produce(300, random);
                    Thread.sleep(500);
                    guest.end();
                }
                produce(300, random);
            }
            judgement = judge();
            first.end();
        }
        System.out.println("streams: rebalances: " + model.inputs + " inputs, " + judgement);
        assertEquals(new Judgement(model.inputs / 3 + model.joins, 0, 0), judgement);
    }

    @Test
    void aLostStateDirectoryIsRestored() throws Exception {
        Random random = new Random(74);
        begin("restored");
        produce(3000, random);
        try (Child child = Child.start(CountAndJoin.class, configuration("one"))) {
            await("RUNNING", child, () -> child.hasSaid("RUNNING"));
            judge();
            child.kill();
        }
        deleteAll(new File(folder, "one"));
        produce(500, random);
        Judgement judgement;
        try (Child child = Child.start(CountAndJoin.class, configuration("one"))) {
            await("RUNNING", child, () -> child.hasSaid("RUNNING"));
            judgement = judge();
            child.end();
        }
        assertEquals(new Judgement(model.inputs / 3 + model.joins, 0, 0), judgement);
    }

    private static void deleteAll(File folder) throws IOException {
        try (Stream<Path> files = Files.walk(folder.toPath())) {
            for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(file);
            }
        }
    }
}
