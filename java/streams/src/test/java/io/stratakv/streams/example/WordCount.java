package io.stratakv.streams.example;

import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** Counts words: lines come from the topic `lines`, counts go to the topic `counts`. */
public final class WordCount {
    private WordCount() {}

    /** Runs until the process ends. Arguments: the brokers, and the directory of the state. */
    public static void main(String[] arguments) {
        KafkaStreams streams = new KafkaStreams(topology(), properties(arguments[0], arguments[1]));
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    public static Properties properties(String brokers, String directory) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "word-count");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, brokers);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        // So that commits reach the stores, whichever these are:
        properties.put(StreamsConfig.TRANSACTIONAL_STATE_STORES_CONFIG, true);
        // The one line:
        properties.put("dsl.store.suppliers.class", "io.stratakv.streams.StrataKvDslStoreSuppliers");
        return properties;
    }

    public static Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("lines", Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.toLowerCase().split("\\W+")))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.as("counts-by-word"))
                .toStream()
                .to("counts", Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }
}
