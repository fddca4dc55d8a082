package io.stratakv.streams.cluster;

import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
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

    /** Arguments: {@code name=value} of the configuration; prints `RUNNING` each time it is. */
    public static void main(String[] arguments) {
        Map<String, String> given = Arrays.stream(arguments)
                .map(argument -> argument.split("=", 2))
                .collect(Collectors.toMap(parts -> parts[0], parts -> parts[1]));
        Properties properties = properties();
        properties.putAll(given);
        KafkaStreams streams = new KafkaStreams(topology(properties.getProperty("application.id")), properties);
        streams.setStateListener((now, before) -> System.out.println(now));
        streams.setGlobalStateRestoreListener(new RestoreReport());
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace(System.out);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
    }

    private static Properties properties() {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "count-and-join");
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.TRANSACTIONAL_STATE_STORES_CONFIG, true);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 50);
        properties.put("statestore.cache.max.bytes", 0);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 3);
        properties.put("dsl.store.suppliers.class", "io.stratakv.streams.StrataKvDslStoreSuppliers");
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 6000);
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 500);
        properties.put(StreamsConfig.producerPrefix(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG), 10_000);
        return properties;
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
