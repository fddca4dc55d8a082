package io.stratakv.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.query.Position;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** A topology with all that the DSL keeps, on our stores and on Kafka's own: the outputs are the same. */
class DslTest {
    private static final String OURS = "io.stratakv.streams.StrataKvDslStoreSuppliers";
    /** Kafka's stores in memory: those on RocksDB need a minute, as a driver commits each record. */
    private static final String THEIRS =
            "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers";
    private static final int RECORDS = 1000;

    @TempDir
    File folder;

    private static Topology topology(Properties properties) {
        StreamsBuilder builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(properties)));
        KStream<String, String> input = builder.stream("input");
        input.groupByKey(Grouped.with(Serdes.String(), Serdes.String())).count(Materialized.as("counts")).toStream().mapValues(String::valueOf).to("counts");
        input.groupByKey(Grouped.with(Serdes.String(), Serdes.String())).windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(5), Duration.ofMinutes(5)))
                .count().toStream((window, count) -> key(window)).mapValues(String::valueOf).to("windows");
        input.groupByKey(Grouped.with(Serdes.String(), Serdes.String())).windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(5), Duration.ofMinutes(5)))
                .emitStrategy(EmitStrategy.onWindowClose())
                .count().toStream((window, count) -> key(window)).mapValues(String::valueOf).to("closed");
        input.groupByKey(Grouped.with(Serdes.String(), Serdes.String())).windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofMinutes(1), Duration.ofMinutes(5)))
                .reduce((one, other) -> one + other).toStream((window, all) -> key(window)).to("sessions");
        input.groupByKey(Grouped.with(Serdes.String(), Serdes.String())).windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofMinutes(1), Duration.ofMinutes(5)))
                .count().suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
                .toStream((window, count) -> key(window)).mapValues(String::valueOf).to("suppressed");
        KStream<String, String> other = builder.stream("other");
        input.outerJoin(other, (one, two) -> one + "+" + two,
                JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(30), Duration.ofMinutes(1))).to("joined");
        input.join(builder.table("other-table", Materialized.as("table")), (one, two) -> one + "/" + two).to("looked-up");
        input.join(builder.globalTable("globals", Materialized.as("globals")), (key, value) -> key, (one, two) -> one + "!" + two)
                .to("global");
        return builder.build();
    }

    private static String key(Windowed<String> window) {
        return window.key() + "@" + window.window().start() + "-" + window.window().end();
    }

    @ParameterizedTest
    @CsvSource({"DEFAULT,0", "DEFAULT,1000000", "HEADERS,0", "HEADERS,1000000"})
    void outputsAreThoseOfKafkasStores(String format, String cacheBytes) {
        List<String> theirs = outputs(THEIRS, format, cacheBytes);
        List<String> ours = outputs(OURS, format, cacheBytes);
        for (int i = 0; i < Math.max(theirs.size(), ours.size()); i++) {
            int at = i;
            assertEquals(
                    i < theirs.size() ? theirs.get(i) : "the end", i < ours.size() ? ours.get(i) : "the end",
                    () -> "output " + at);
        }
        assertTrue(new File(folder, OURS + "/dsl/stratakv").isDirectory(), "our stores were used");
    }

    private List<String> outputs(String suppliers, String format, String cacheBytes) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "dsl");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:9092");
        properties.put(StreamsConfig.STATE_DIR_CONFIG, new File(folder, suppliers).getPath());
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put("statestore.cache.max.bytes", cacheBytes);
        properties.put("dsl.store.suppliers.class", suppliers);
        properties.put("dsl.store.format", format);
        List<String> outputs = new ArrayList<>();
        Random random = new Random(17);
        try (TopologyTestDriver driver = new TopologyTestDriver(topology(properties), properties, Instant.EPOCH)) {
            StringSerializer to = new StringSerializer();
            TestInputTopic<String, String> input = driver.createInputTopic("input", to, to);
            TestInputTopic<String, String> other = driver.createInputTopic("other", to, to);
            TestInputTopic<String, String> table = driver.createInputTopic("other-table", to, to);
            TestInputTopic<String, String> globals = driver.createInputTopic("globals", to, to);
            long now = 0;
            for (int i = 0; i < RECORDS; i++) {
                now += random.nextInt(20_000);
                long at = Math.max(0, now - random.nextInt(200_000));
                String key = "k" + random.nextInt(10);
                switch (random.nextInt(7)) {
                    case 0 -> other.pipeInput(key, "o" + i, at);
                    case 2 -> globals.pipeInput(key, "g" + i, at);
                    case 1 -> table.pipeInput(key, random.nextInt(4) == 0 ? null : "t" + i, at);
                    default -> input.pipeInput(key, "i" + i, at);
                }
                if (i % 50 == 0) {
                    driver.advanceWallClockTime(Duration.ofSeconds(31));
                }
            }
            for (String topic : List.of(
                    "counts", "windows", "closed", "sessions", "suppressed", "joined", "looked-up", "global")) {
                TestOutputTopic<String, String> output =
                        driver.createOutputTopic(topic, new StringDeserializer(), new StringDeserializer());
                output.readRecordsToList().forEach(record ->
                        outputs.add(topic + " " + record.key() + "=" + record.value() + "@" + record.timestamp()));
            }
        }
        assertTrue(outputs.size() > RECORDS, "something came out");
        // Stores differ in the order of what they give at one instant.
        Collections.sort(outputs);
        return outputs;
    }

    @ParameterizedTest
    @CsvSource({"true", "false"})
    void aStoreTakesASupplier(boolean isVersioned) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("input", Consumed.with(Serdes.String(), Serdes.String()))
                .toTable(isVersioned
                        ? Materialized.<String, String>as(StrataKvStores.versionedKeyValue("names", Duration.ofHours(1)))
                                .withKeySerde(Serdes.String()).withValueSerde(Serdes.String())
                        : Materialized.<String, String>as(StrataKvStores.timestampedKeyValue("names"))
                                .withKeySerde(Serdes.String()).withValueSerde(Serdes.String()));
        Properties properties = Harness.configuration(false);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, folder.getPath());
        properties.put("statestore.cache.max.bytes", 0);
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), properties)) {
            driver.createInputTopic("input", new StringSerializer(), new StringSerializer()).pipeInput("a", "A", 5L);
            StateStore store = isVersioned
                    ? driver.getVersionedKeyValueStore("names")
                    : driver.getTimestampedKeyValueStore("names");
            assertEquals(Position.emptyPosition().withComponent("input", 0, 0), store.getPosition());
            if (isVersioned) {
                assertEquals("A", driver.<String, String>getVersionedKeyValueStore("names").get("a").value());
            } else {
                assertEquals(
                        5L, driver.<String, String>getTimestampedKeyValueStore("names").get("a").timestamp(),
                        "timestamps are kept");
            }
        }
    }
}
