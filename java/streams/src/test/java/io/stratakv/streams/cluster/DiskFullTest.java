package io.stratakv.streams.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Two instances, exactly once; the disk of one is full for a while. */
@Tag("cluster")
@Timeout(1800)
class DiskFullTest {
    private static final String APPLICATION = "full";
    private static final int PARTITIONS = 2;
    private static final int VALUE_CHARS = 16_000;
    private static final int BURST = 200;
    /** A store takes 128 MiB of its disk when it is made: each instance is given more. */
    private static final int BURSTS_MAX = 110;

    @TempDir
    File folder;

    private final Map<String, Integer> asked = new HashMap<>();
    private final Map<String, String> shown = new HashMap<>();
    private final Random random = new Random(81);
    private Cluster cluster;

    private static String topic(String topic) {
        return CountAndJoin.topic(APPLICATION, topic);
    }

    @Test
    void afterAFullDiskNothingIsLostOrDoneTwice() throws Exception {
        cluster = Cluster.start();
        try (SmallDisk disk = SmallDisk.mount(folder, 256L << 20)) {
            run(disk);
        } finally {
            cluster.close();
        }
    }

    private void run(SmallDisk disk) throws Exception {
        for (String topic : List.of(LookUp.VALUES, LookUp.QUESTIONS, LookUp.ANSWERS)) {
            cluster.createTopicOfOneCopy(topic(topic), PARTITIONS);
        }
        put();
        try (Child full = Child.start(LookUp.class, configuration("one", disk.folder()));
                Child other = Child.start(LookUp.class, configuration("two", new File(folder, "two")))) {
            full.awaitRunning();
            other.awaitRunning();
            disk.fill(1 << 20);
            List<String> first = List.copyOf(shown.keySet());
            ask(first);
            cluster.awaitRecords(topic(LookUp.ANSWERS), asked.size(), Feed.PATIENCE);
            for (int burst = 0; !isFullTold(full) && burst < BURSTS_MAX; burst++) {
                put();
                Thread.sleep(200);
            }
            full.await("a report of the full disk", Feed.PATIENCE, () -> isFullTold(full));
            List<Long> before = cluster.committed(topic(LookUp.ANSWERS));
            ask(first);
            other.await("answers of the other instance", Feed.PATIENCE, () -> hasGrownSomewhere(before));
            disk.empty();
            ask(shown.keySet());
            judge();
            System.out.println("streams: full disk: " + shown.size() + " values, " + asked.size()
                    + " questions answered once, " + reports(full) + " reports");
            full.end();
            other.end();
        }
    }

    private static boolean isFullTold(Child child) {
        return child.hasSaidWords("cannot commit: the store is full");
    }

    private static long reports(Child child) {
        return child.lines().stream().filter(line -> line.contains("the store is full")).count();
    }

    private void put() throws Exception {
        List<Cluster.Message> messages = new ArrayList<>();
        for (int i = 0; i < BURST; i++) {
            String key = "key" + shown.size();
            String value = random.ints(VALUE_CHARS, 'a', 'z' + 1)
                    .collect(StringBuilder::new, StringBuilder::appendCodePoint, StringBuilder::append)
                    .toString();
            shown.put(key, LookUp.shown(value));
            messages.add(new Cluster.Message(topic(LookUp.VALUES), key, value));
        }
        cluster.produce(messages);
    }

    private void ask(Iterable<String> keys) throws Exception {
        List<Cluster.Message> messages = new ArrayList<>();
        for (String key : keys) {
            String question = "question" + asked.size();
            asked.put(question, 0);
            messages.add(new Cluster.Message(topic(LookUp.QUESTIONS), key, question));
        }
        cluster.produce(messages);
    }

    /** Each question must be answered once, with the value that its key has. */
    private void judge() {
        for (ConsumerRecord<String, String> answer :
                cluster.consume(topic(LookUp.ANSWERS), asked.size(), Feed.PATIENCE)) {
            String[] parts = answer.value().split("=", 2);
            assertEquals(shown.get(answer.key()), parts[1], "the value of " + answer.key());
            asked.merge(parts[0], 1, Integer::sum);
        }
        assertEquals(0, asked.values().stream().filter(times -> times == 0).count(), "questions without an answer");
        assertEquals(0, asked.values().stream().filter(times -> times > 1).count(), "questions answered twice");
    }

    private boolean hasGrownSomewhere(List<Long> before) {
        List<Long> now = cluster.committed(topic(LookUp.ANSWERS));
        return IntStream.range(0, now.size()).anyMatch(at -> now.get(at) > before.get(at));
    }

    private Map<String, String> configuration(String instance, File state) {
        Map<String, String> configuration = new HashMap<>();
        configuration.put("application.id", APPLICATION);
        configuration.put("bootstrap.servers", cluster.brokers());
        configuration.put("state.dir", state.getPath());
        configuration.put("replication.factor", "1");
        configuration.put("consumer.group.instance.id", instance);
        configuration.put("stratakv.memory.bytes", "" + (32 << 20));
        return configuration;
    }
}
