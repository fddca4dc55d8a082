package io.stratakv.streams.cluster;

import static org.apache.kafka.common.IsolationLevel.READ_COMMITTED;
import static org.apache.kafka.common.IsolationLevel.READ_UNCOMMITTED;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.stratakv.streams.StrataKvStores;
import java.io.File;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import java.util.function.Supplier;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.query.KeyQuery;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.StateQueryRequest;
import org.apache.kafka.streams.query.StateQueryResult;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Interactive queries of a running application, between its commits, which it does when told to. */
@Tag("cluster")
@Timeout(600)
class QueryClusterTest {
    private static final String COMMIT = "commit now";

    @TempDir
    File folder;

    /** Keeps the latest value of each key. */
    private static final class Keeping implements Processor<String, String, Void, Void> {
        private ProcessorContext<Void, Void> context;
        private KeyValueStore<String, String> store;

        @Override
        public void init(ProcessorContext<Void, Void> context) {
            this.context = context;
            this.store = context.getStateStore("values");
        }

        @Override
        public void process(Record<String, String> record) {
            store.put(record.key(), record.value());
            if (record.value().equals(COMMIT)) {
                context.commit();
            }
        }
    }

    private static Topology topology(boolean isCached) {
        var builder = Stores.keyValueStoreBuilder(
                StrataKvStores.keyValue("values"), Serdes.String(), Serdes.String());
        return new Topology()
                .addSource("source", "values-input")
                .addProcessor("keeping", Keeping::new, "source")
                .addStateStore(isCached ? builder.withCachingEnabled() : builder, "keeping");
    }

    private Properties properties(Cluster cluster) {
        Properties properties = Instance.properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "queried");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, cluster.brokers());
        properties.put(StreamsConfig.STATE_DIR_CONFIG, folder.getPath());
        properties.put("statestore.cache.max.bytes", 1 << 20);
        // Longer than the test takes, so that only the records that say so commit.
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 800_000);
        properties.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 900_000);
        properties.put("default.interactive.query.isolation.level", READ_COMMITTED.name());
        return properties;
    }

    /** By a query of the second kind; with a cache by the first: a cache answers those of the second. */
    private static String ask(KafkaStreams streams, boolean isCached, String key, IsolationLevel level) {
        if (isCached) {
            ReadOnlyKeyValueStore<String, String> store = streams.store(
                    StoreQueryParameters.fromNameAndType("values", QueryableStoreTypes.keyValueStore()));
            return store.readOnly(level).get(key);
        }
        StateQueryRequest<String> request = StateQueryRequest.inStore("values")
                .withQuery(KeyQuery.<String, String>withKey(key))
                .withIsolationLevel(level);
        StateQueryResult<String> result = streams.query(request);
        QueryResult<String> only = result.getOnlyPartitionResult();
        return only == null ? null : only.getResult();
    }

    private static void await(Supplier<Object> what, Object expected) throws InterruptedException {
        long end = System.nanoTime() + Feed.PATIENCE.toNanos();
        while (!Objects.equals(what.get(), expected)) {
            assertTrue(System.nanoTime() < end, "waited in vain for " + expected + ", saw " + what.get());
            Thread.sleep(20);
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void queriesSeeWhatTheirIsolationAllows(boolean isCached) throws Exception {
        Cluster cluster = Cluster.start();
        try (KafkaStreams streams = new KafkaStreams(topology(isCached), properties(cluster))) {
            cluster.createTopic("values-input", 1);
            streams.start();
            await(streams::state, KafkaStreams.State.RUNNING);
            put(cluster, "a", "first", "mark", COMMIT);
            await(() -> ask(streams, isCached, "a", READ_COMMITTED), "first");
            put(cluster, "a", "second", "b", "new");
            await(() -> ask(streams, isCached, "b", READ_UNCOMMITTED), "new");
            assertEquals("second", ask(streams, isCached, "a", READ_UNCOMMITTED));
            assertEquals("first", ask(streams, isCached, "a", READ_COMMITTED));
            ReadOnlyKeyValueStore<String, String> store = streams.store(
                    StoreQueryParameters.fromNameAndType("values", QueryableStoreTypes.keyValueStore()));
            assertEquals("first", store.get("a"), "the default is READ_COMMITTED");
            assertEquals("second", store.readOnly(READ_UNCOMMITTED).get("a"));
            assertEquals(2, count(store), "a and mark");
            assertEquals(3, count(store.readOnly(READ_UNCOMMITTED)));
            put(cluster, "mark", COMMIT);
            await(() -> ask(streams, isCached, "b", READ_COMMITTED), "new");
            assertEquals("second", store.get("a"));
            streams.close(Duration.ofSeconds(20));
        } finally {
            cluster.close();
        }
    }

    private static int count(ReadOnlyKeyValueStore<String, String> store) {
        try (KeyValueIterator<String, String> all = store.all()) {
            int count = 0;
            for (; all.hasNext(); count++) {
                assertNotNull(all.next());
            }
            return count;
        }
    }

    private static void put(Cluster cluster, String... keysAndValues) throws Exception {
        for (int i = 0; i < keysAndValues.length; i += 2) {
            cluster.produce(List.of(new Cluster.Message("values-input", keysAndValues[i], keysAndValues[i + 1])));
        }
    }
}
