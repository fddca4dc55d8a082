package io.stratakv.streams.cluster;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/**
 * Feeds {@link CountAndJoin}, and judges what comes out. Each input makes one output, so the
 * outputs tell what was lost and what was done twice.
 */
final class Feed {
    static final int PARTITIONS = 2;
    static final Duration PATIENCE = Duration.ofSeconds(Integer.getInteger("streams.patience", 120));
    private static final int WORDS = 50;

    private final Cluster cluster;
    private final String application;
    /** Put behind each value of the join, so that its stores grow. */
    private final String padding;
    private final Map<String, Integer> counts = new HashMap<>();
    private int joins;
    private int inputs;

    private Feed(Cluster cluster, String application, int paddingBytes) {
        this.cluster = cluster;
        this.application = application;
        this.padding = "x".repeat(paddingBytes);
    }

    /** For an application of this name, whose topics are made. */
    static Feed of(Cluster cluster, String application, int paddingBytes)
            throws ExecutionException, InterruptedException {
        Feed feed = new Feed(cluster, application, paddingBytes);
        for (String topic : List.of(
                CountAndJoin.WORDS, CountAndJoin.COUNTS, CountAndJoin.LEFT, CountAndJoin.RIGHT, CountAndJoin.JOINED)) {
            cluster.createTopic(feed.topic(topic), PARTITIONS);
        }
        return feed;
    }

    String topic(String topic) {
        return CountAndJoin.topic(application, topic);
    }

    int inputs() {
        return inputs;
    }

    /** So many words, and so many pairs to be joined. */
    void produce(int records, Random random) throws ExecutionException, InterruptedException {
        List<Cluster.Message> messages = new ArrayList<>();
        for (int i = 0; i < records; i++) {
            String word = "word" + random.nextInt(WORDS);
            counts.merge(word, 1, Integer::sum);
            messages.add(new Cluster.Message(topic(CountAndJoin.WORDS), word, "" + inputs));
            String pair = "pair" + joins++;
            messages.add(new Cluster.Message(topic(CountAndJoin.LEFT), pair, "l" + padding));
            messages.add(new Cluster.Message(topic(CountAndJoin.RIGHT), pair, "r" + padding));
            inputs += 3;
        }
        cluster.produce(messages);
    }

    /** What is committed of both outputs, by partition. */
    List<Long> committed() {
        List<Long> all = new ArrayList<>(cluster.committed(topic(CountAndJoin.COUNTS)));
        all.addAll(cluster.committed(topic(CountAndJoin.JOINED)));
        return all;
    }

    /** Whether something came out in each partition of both outputs. */
    boolean hasGrown(List<Long> before) {
        List<Long> now = committed();
        return IntStream.range(0, now.size()).allMatch(at -> now.get(at) > before.get(at));
    }

    /** What came out beside what should have. */
    record Judgement(int records, int lost, int doubled) {}

    /** What must come out: each record once. */
    Judgement expected() {
        return new Judgement(inputs / 3 + joins, 0, 0);
    }

    Judgement judge() {
        List<ConsumerRecord<String, String>> counted =
                cluster.consume(topic(CountAndJoin.COUNTS), inputs / 3, PATIENCE);
        List<ConsumerRecord<String, String>> joined = cluster.consume(topic(CountAndJoin.JOINED), joins, PATIENCE);
        Judgement ofCounts = judgeCounts(counted);
        Judgement ofJoins = judgeJoins(joined);
        return new Judgement(
                counted.size() + joined.size(), ofCounts.lost + ofJoins.lost, ofCounts.doubled + ofJoins.doubled);
    }

    private Judgement judgeCounts(List<ConsumerRecord<String, String>> counted) {
        Map<String, List<Integer>> found = new HashMap<>();
        counted.forEach(record ->
                found.computeIfAbsent(record.key(), key -> new ArrayList<>()).add(Integer.valueOf(record.value())));
        int lost = 0;
        int doubled = 0;
        for (Map.Entry<String, Integer> expected : counts.entrySet()) {
            List<Integer> seen = found.getOrDefault(expected.getKey(), List.of());
            for (int count = 1; count <= expected.getValue(); count++) {
                int times = Collections.frequency(seen, count);
                lost += times == 0 ? 1 : 0;
                doubled += Math.max(0, times - 1);
            }
            doubled += (int) seen.stream().filter(count -> count > expected.getValue()).count();
        }
        return new Judgement(counted.size(), lost, doubled);
    }

    private Judgement judgeJoins(List<ConsumerRecord<String, String>> joined) {
        Map<String, Integer> found = new HashMap<>();
        String expected = "l" + padding + "+r" + padding;
        joined.stream()
                .filter(record -> record.value().equals(expected))
                .forEach(record -> found.merge(record.key(), 1, Integer::sum));
        int lost = 0;
        int doubled = 0;
        for (int pair = 0; pair < joins; pair++) {
            int times = found.getOrDefault("pair" + pair, 0);
            lost += times == 0 ? 1 : 0;
            doubled += Math.max(0, times - 1);
        }
        return new Judgement(joined.size(), lost, doubled);
    }
}
