package io.stratakv.streams.cluster;

import java.time.Duration;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;

/**
 * The application that the tests kill. It counts the words of one topic, and joins two topics in a
 * window. Each input record makes one output record: what is lost or doubled shows.
 */
public final class CountAndJoin {
    static final String WORDS = "words";
    static final String COUNTS = "word-counts";
    static final String LEFT = "left";
    static final String RIGHT = "right";
    static final String JOINED = "joined";

    private CountAndJoin() {}

    /** Arguments: {@code name=value} of the configuration. */
    public static void main(String[] arguments) {
        Instance.run(arguments, CountAndJoin::topology);
    }

    /** Each application has topics of its own, with its name before theirs. */
    static String topic(String application, String topic) {
        return application + "-" + topic;
    }

    static Topology topology(String application) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> words = builder.stream(topic(application, WORDS));
        words.groupByKey()
                .count(Materialized.as("counts"))
                .toStream()
                .mapValues(String::valueOf)
                .to(topic(application, COUNTS));
        KStream<String, String> left = builder.stream(topic(application, LEFT));
        KStream<String, String> right = builder.stream(topic(application, RIGHT));
        left.join(
                        right, (one, other) -> one + "+" + other,
                        JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofMinutes(10)))
                .to(topic(application, JOINED));
        return builder.build();
    }
}
