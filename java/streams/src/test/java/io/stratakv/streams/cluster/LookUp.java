package io.stratakv.streams.cluster;

import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;

/** Keeps the latest value of each key, and answers each question with it: an answer is a read. */
public final class LookUp {
    static final String VALUES = "values";
    static final String QUESTIONS = "questions";
    static final String ANSWERS = "answers";

    private LookUp() {}

    /** Arguments: {@code name=value} of the configuration. */
    public static void main(String[] arguments) {
        Instance.run(arguments, LookUp::topology);
    }

    /** What an answer has of a value: enough to tell it from others. */
    static String shown(String value) {
        return value.length() + " chars, hash " + value.hashCode();
    }

    static Topology topology(String application) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> questions = builder.stream(CountAndJoin.topic(application, QUESTIONS));
        questions.join(
                        builder.<String, String>table(
                                CountAndJoin.topic(application, VALUES), Materialized.as("latest")),
                        (question, value) -> question + "=" + shown(value))
                .to(CountAndJoin.topic(application, ANSWERS));
        return builder.build();
    }
}
