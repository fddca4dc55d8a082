package io.stratakv.streams.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Bits of the store's files are turned while an instance runs, or after it was killed. Each
 * question must be answered once, with the value that its key has.
 */
@Tag("cluster")
@Timeout(1800)
class DamageTest {
    private static final int PARTITIONS = 2;
    private static final int KEYS = 6000;
    private static final int VALUE_CHARS = 4000;
    /** A turned bit in each such piece. */
    private static final int PIECE_BYTES = 64 << 10;
    /** Superblocks and manifests are at the beginning. */
    private static final long HEAD_BYTES = 1 << 20;

    private static final int LOOKS = 5;

    private static Cluster cluster;

    @TempDir
    File folder;

    private final Map<String, String> values = new HashMap<>();
    private String application;
    private int questions;

    @BeforeAll
    static void start() throws Exception {
        cluster = Cluster.start();
    }

    @AfterAll
    static void end() throws Exception {
        cluster.close();
    }

    private String topic(String topic) {
        return CountAndJoin.topic(application, topic);
    }

    private Map<String, String> begin(String name, String guarantee) throws Exception {
        application = name;
        for (String topic : List.of(LookUp.VALUES, LookUp.QUESTIONS, LookUp.ANSWERS)) {
            cluster.createTopic(topic(topic), PARTITIONS);
        }
        Random random = new Random(91);
        List<Cluster.Message> messages = new ArrayList<>();
        for (int i = 0; i < KEYS; i++) {
            values.put("key" + i, text(random));
            messages.add(new Cluster.Message(topic(LookUp.VALUES), "key" + i, values.get("key" + i)));
        }
        cluster.produce(messages);
        Map<String, String> configuration = new HashMap<>();
        configuration.put("application.id", application);
        configuration.put("bootstrap.servers", cluster.brokers());
        configuration.put("state.dir", folder.getPath());
        configuration.put("processing.guarantee", guarantee);
        configuration.put("consumer.group.instance.id", "one");
        configuration.put("stratakv.memory.bytes", "" + (32 << 20));
        return configuration;
    }

    private static String text(Random random) {
        return random.ints(VALUE_CHARS, 'a', 'z' + 1)
                .collect(StringBuilder::new, StringBuilder::appendCodePoint, StringBuilder::append)
                .toString();
    }

    /** Asks for each key. */
    private void ask() throws Exception {
        List<Cluster.Message> messages = new ArrayList<>();
        for (String key : values.keySet()) {
            messages.add(new Cluster.Message(topic(LookUp.QUESTIONS), key, "" + questions++));
        }
        cluster.produce(messages);
    }

    /** Each question must be answered once, or with at-least-once processing at least once. */
    private void judge(boolean isExactlyOnce) {
        Map<String, Integer> answered = new HashMap<>();
        int expected = questions;
        // Doubled answers count in what is awaited: then it is looked again.
        for (int looks = 0; answered.size() < questions && looks < LOOKS; looks++) {
            answered.clear();
            for (ConsumerRecord<String, String> answer :
                    cluster.consume(topic(LookUp.ANSWERS), expected, Feed.PATIENCE)) {
                String[] parts = answer.value().split("=", 2);
                assertEquals(LookUp.shown(values.get(answer.key())), parts[1], "the value of " + answer.key());
                answered.merge(parts[0], 1, Integer::sum);
            }
            expected = answered.values().stream().mapToInt(times -> times).sum() + questions - answered.size();
        }
        assertEquals(questions, answered.size(), "questions answered");
        long doubled = answered.values().stream().filter(times -> times > 1).count();
        System.out.println("streams: damage: " + questions + " questions answered, " + doubled + " of them twice");
        assertTrue(!isExactlyOnce || doubled == 0, doubled + " questions were answered twice");
    }

    @ParameterizedTest
    @ValueSource(strings = {"exactly_once_v2", "at_least_once"})
    void damageUnderARunningInstanceIsRestored(String guarantee) throws Exception {
        Map<String, String> configuration = begin("running-" + guarantee, guarantee);
        try (Child child = Child.start(LookUp.class, configuration)) {
            child.awaitRunning();
            ask();
            cluster.awaitRecords(topic(LookUp.ANSWERS), questions, Feed.PATIENCE);
            damage(HEAD_BYTES);
            ask();
            judge(guarantee.startsWith("exactly"));
            assertTrue(isDamageMet(child), () -> "no damage was met: " + child.lines());
            // All that is left of the damage must be gone: a new life finds none.
            child.end();
        }
        try (Child child = Child.start(LookUp.class, configuration)) {
            child.awaitRunning();
            ask();
            judge(guarantee.startsWith("exactly"));
            child.end();
        }
    }

    @ParameterizedTest
    @ValueSource(longs = {HEAD_BYTES, 0})
    void damageUnderAKilledInstanceIsRestored(long fromBytes) throws Exception {
        Map<String, String> configuration = begin("killed-" + fromBytes, "exactly_once_v2");
        try (Child child = Child.start(LookUp.class, configuration)) {
            child.awaitRunning();
            ask();
            cluster.awaitRecords(topic(LookUp.ANSWERS), questions, Feed.PATIENCE);
            child.kill();
        }
        damage(fromBytes);
        ask();
        try (Child child = Child.start(LookUp.class, configuration)) {
            child.awaitRunning();
            judge(true);
            assertTrue(isDamageMet(child), () -> "no damage was met: " + child.lines());
            child.end();
        }
    }

    private static boolean isDamageMet(Child child) {
        return Stream.of("TaskCorruptedException", "TaskMigratedException", "is damaged").anyMatch(child::hasSaidWords);
    }

    /** Turns a bit in each piece of the store's files, from some place on. */
    private void damage(long fromBytes) throws IOException {
        Path store = folder.toPath().resolve(application).resolve("stratakv");
        Random random = new Random(92);
        int turned = 0;
        try (Stream<Path> files = Files.walk(store)) {
            for (Path file : files.filter(Files::isRegularFile).toList()) {
                try (RandomAccessFile bytes = new RandomAccessFile(file.toFile(), "rw")) {
                    for (long at = fromBytes + random.nextInt(PIECE_BYTES); at < bytes.length(); at += PIECE_BYTES) {
                        turn(bytes, at, random);
                        turned++;
                    }
                }
                System.out.println("streams: damage: " + file.getFileName() + ", " + Files.size(file) + " bytes");
            }
        }
        assertTrue(turned > 0, "nothing was turned");
    }

    private static void turn(RandomAccessFile bytes, long at, Random random) throws IOException {
        bytes.seek(at);
        int read = bytes.read();
        bytes.seek(at);
        bytes.write(read ^ 1 << random.nextInt(8));
    }
}
