package io.stratakv.streams.cluster;

import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/** An instance of an application in a process of its own, which tells on its output what it does. */
final class Instance {
    private Instance() {}

    /**
     * Runs until the process ends. Arguments: {@code name=value} of the configuration. Prints each
     * state, such as `RUNNING`, what is restored, and errors; a thread that fails is replaced.
     */
    static void run(String[] arguments, Function<String, Topology> topology) {
        Properties properties = properties();
        properties.putAll(given(arguments));
        KafkaStreams streams = new KafkaStreams(topology.apply(properties.getProperty("application.id")), properties);
        streams.setStateListener((now, before) -> System.out.println(now));
        streams.setGlobalStateRestoreListener(new RestoreReport());
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace(System.out);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
    }

    static Map<String, String> given(String[] arguments) {
        return Arrays.stream(arguments)
                .map(argument -> argument.split("=", 2))
                .collect(Collectors.toMap(parts -> parts[0], parts -> parts[1]));
    }

    static Properties properties() {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "application");
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
}
