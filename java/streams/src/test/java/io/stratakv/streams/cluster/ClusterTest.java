package io.stratakv.streams.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * Exactly-once processing on three brokers, while instances of the application die.
 */
@Tag("cluster")
@Timeout(3600)
class ClusterTest {
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

    private Feed feed;
    private String application;

    private Map<String, String> configuration(String instance) {
        Map<String, String> configuration = new HashMap<>();
        configuration.put("application.id", application);
        configuration.put("bootstrap.servers", cluster.brokers());
        configuration.put("state.dir", new File(folder, instance).getPath());
        configuration.put("consumer.group.instance.id", instance);
        return configuration;
    }

    private void begin(String name) throws ExecutionException, InterruptedException {
        application = name;
        feed = Feed.of(cluster, name, 0);
    }

    @Test
    void nothingIsLostOrDoneTwiceWhileTheApplicationIsKilled() throws Exception {
        int kills = Integer.getInteger("streams.kills", 20);
        Random random = new Random(71);
        begin("killed");
        feed.produce(2000, random);
        int resumed = 0;
        int fromBeginning = 0;
        for (int kill = 0; kill < kills; kill++) {
            try (Child child = Child.start(CountAndJoin.class, configuration("one"))) {
                List<Long> before = feed.committed();
                for (int burst = 0; burst < 3; burst++) {
                    feed.produce(100, random);
                }
                child.await("commits", Feed.PATIENCE, () -> feed.hasGrown(before));
                // Anywhere in a commit interval, and in the commits themselves.
                feed.produce(100, random);
                Thread.sleep(random.nextInt(200));
                child.kill();
                for (String line : child.lines()) {
                    fromBeginning += kill > 0 && line.matches("RESTORE .* from 0 to .*") ? 1 : 0;
                    resumed += kill > 0 && line.matches("RESTORE .* from [1-9].*") ? 1 : 0;
                }
            }
        }
        Feed.Judgement judgement;
        try (Child child = Child.start(CountAndJoin.class, configuration("one"))) {
            child.awaitRunning();
            judgement = feed.judge();
            child.end();
        }
        System.out.println("streams: " + kills + " kills, " + feed.inputs() + " inputs, " + judgement
                + ", stores that went on from a committed offset " + resumed + ", from the beginning " + fromBeginning);
        assertEquals(feed.expected(), judgement);
        assertEquals(0, fromBeginning, "a killed instance goes on from its committed offset");
    }

    @Test
    void aStandbyTakesOver() throws Exception {
        Random random = new Random(72);
        begin("standby");
        feed.produce(2000, random);
        Map<String, String> one = configuration("one");
        Map<String, String> two = configuration("two");
        one.put("num.standby.replicas", "1");
        two.put("num.standby.replicas", "1");
        Feed.Judgement judgement;
        try (Child first = Child.start(CountAndJoin.class, one); Child second = Child.start(CountAndJoin.class, two)) {
            first.awaitRunning();
            second.awaitRunning();
            for (int round = 0; round < 10; round++) {
                feed.produce(200, random);
                Thread.sleep(300);
            }
            first.kill();
            feed.produce(1000, random);
            judgement = feed.judge();
            second.end();
        }
        System.out.println("streams: standby takeover: " + feed.inputs() + " inputs, " + judgement);
        assertEquals(feed.expected(), judgement);
    }

    @Test
    void instancesComeAndGo() throws Exception {
        Random random = new Random(73);
        begin("rebalanced");
        feed.produce(500, random);
        Feed.Judgement judgement;
        try (Child first = Child.start(CountAndJoin.class, configuration("one"))) {
            first.awaitRunning();
            for (int round = 0; round < 3; round++) {
                try (Child guest = Child.start(CountAndJoin.class, configuration("guest"))) {
                    guest.awaitRunning();
                    feed.produce(300, random);
                    Thread.sleep(500);
                    guest.end();
                }
                feed.produce(300, random);
            }
            judgement = feed.judge();
            first.end();
        }
        System.out.println("streams: rebalances: " + feed.inputs() + " inputs, " + judgement);
        assertEquals(feed.expected(), judgement);
    }

    @Test
    void aLostStateDirectoryIsRestored() throws Exception {
        Random random = new Random(74);
        begin("restored");
        feed.produce(3000, random);
        try (Child child = Child.start(CountAndJoin.class, configuration("one"))) {
            child.awaitRunning();
            feed.judge();
            child.kill();
        }
        deleteAll(new File(folder, "one"));
        feed.produce(500, random);
        Feed.Judgement judgement;
        try (Child child = Child.start(CountAndJoin.class, configuration("one"))) {
            child.awaitRunning();
            judgement = feed.judge();
            child.end();
        }
        assertEquals(feed.expected(), judgement);
    }

    private static void deleteAll(File folder) throws IOException {
        try (Stream<Path> files = Files.walk(folder.toPath())) {
            for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(file);
            }
        }
    }
}
