package io.stratakv.streams.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Two instances, exactly once; the disk of one is full for a while. */
@Tag("cluster")
@Timeout(1800)
class DiskFullTest {
    private static final int VALUE_BYTES = 4000;
    private static final int BURST = 100;
    /** The region takes 16 MiB; some 60 MB of state on both instances are more than have room. */
    private static final int BURSTS_MAX = 100;

    @TempDir
    File folder;

    @Test
    void afterAFullDiskNothingIsLostOrDoneTwice() throws Exception {
        Cluster cluster = Cluster.start();
        try (SmallDisk disk = SmallDisk.mount(folder, 256L << 20)) {
            run(cluster, disk);
        } finally {
            cluster.close();
        }
    }

    private void run(Cluster cluster, SmallDisk disk) throws Exception {
        Random random = new Random(81);
        Feed feed = Feed.of(cluster, "full", VALUE_BYTES);
        feed.produce(BURST, random);
        Feed.Judgement judgement;
        try (Child full = Child.start(CountAndJoin.class, configuration(cluster, "one", disk.folder()));
                Child other = Child.start(CountAndJoin.class, configuration(cluster, "two", new File(folder, "two")))) {
            full.awaitRunning();
            other.awaitRunning();
            disk.fill(1 << 20);
            for (int burst = 0; !full.hasSaidWords("no space") && burst < BURSTS_MAX; burst++) {
                feed.produce(BURST, random);
                Thread.sleep(200);
            }
            full.await("a report of the full disk", Feed.PATIENCE, () -> full.hasSaidWords("no space"));
            List<Long> before = feed.committed();
            feed.produce(BURST, random);
            other.await("outputs of the other instance", Feed.PATIENCE, () -> hasGrownSomewhere(feed, before));
            disk.empty();
            judgement = feed.judge();
            System.out.println("streams: full disk: " + feed.inputs() + " inputs, " + judgement + ", "
                    + full.lines().stream().filter(line -> line.contains("ProcessorStateException: Store")).count()
                    + " reports");
            full.end();
            other.end();
        }
        assertEquals(feed.expected(), judgement);
    }

    private static boolean hasGrownSomewhere(Feed feed, List<Long> before) {
        List<Long> now = feed.committed();
        return IntStream.range(0, now.size()).anyMatch(at -> now.get(at) > before.get(at));
    }

    private static Map<String, String> configuration(Cluster cluster, String instance, File state) {
        Map<String, String> configuration = new HashMap<>();
        configuration.put("application.id", "full");
        configuration.put("bootstrap.servers", cluster.brokers());
        configuration.put("state.dir", state.getPath());
        configuration.put("consumer.group.instance.id", instance);
        configuration.put("stratakv.memory.bytes", "" + (32 << 20));
        return configuration;
    }
}
