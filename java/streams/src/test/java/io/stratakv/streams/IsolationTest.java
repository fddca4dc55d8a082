package io.stratakv.streams;

import static io.stratakv.streams.Harness.bytes;
import static io.stratakv.streams.Harness.listed;
import static io.stratakv.streams.Harness.text;
import static io.stratakv.streams.Harness.value;
import static org.apache.kafka.common.IsolationLevel.READ_COMMITTED;
import static org.apache.kafka.common.IsolationLevel.READ_UNCOMMITTED;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.query.KeyQuery;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.RangeQuery;
import org.apache.kafka.streams.query.VersionedKeyQuery;
import org.apache.kafka.streams.query.WindowKeyQuery;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.ReadOnlySessionStore;
import org.apache.kafka.streams.state.ReadOnlyWindowStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.VersionedBytesStore;
import org.apache.kafka.streams.state.VersionedRecordIterator;
import org.apache.kafka.streams.state.WindowStore;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Queries at READ_COMMITTED see what the last commit has left; those at READ_UNCOMMITTED all. */
class IsolationTest {
    private static final TopicPartition CHANGELOG = new TopicPartition("changelog", 0);

    @TempDir
    File folder;

    private static Properties transactional(boolean isExactlyOnce) {
        Properties configuration = Harness.configuration(isExactlyOnce);
        configuration.put(StreamsConfig.TRANSACTIONAL_STATE_STORES_CONFIG, "true");
        return configuration;
    }

    private <S extends StateStore> S open(S store) {
        return Harness.open(store, folder, 0, transactional(true));
    }

    private static <R> QueryResult<R> ask(StateStore store, Query<R> query, IsolationLevel level) {
        return store.query(query, PositionBound.unbounded(), new QueryConfig(false, level));
    }

    @Test
    void keysAndRanges() {
        KeyValueStore<Bytes, byte[]> store = open(StrataKvStores.timestampedKeyValue("store").get());
        store.put(bytes("a"), value("A"));
        store.put(bytes("ab"), value("AB"));
        store.commit(Map.of(CHANGELOG, 2L));
        store.put(bytes("a"), value("later"));
        store.delete(bytes("ab"));
        store.put(bytes("b"), value("B"));
        ReadOnlyKeyValueStore<Bytes, byte[]> committed = store.readOnly(READ_COMMITTED);
        assertEquals("A", text(committed.get(bytes("a"))));
        assertNull(committed.get(bytes("b")));
        assertEquals(List.of("a=A", "ab=AB"), listed(committed.all()));
        assertEquals(List.of("ab=AB", "a=A"), listed(committed.reverseAll()));
        assertEquals(List.of("ab=AB"), listed(committed.range(bytes("aa"), bytes("z"))));
        assertEquals(List.of("ab=AB", "a=A"), listed(committed.reverseRange(bytes("a"), null)));
        assertEquals(List.of("ab=AB"), listed(committed.prefixScan("ab", new StringSerializer())));
        assertEquals(2, committed.approximateNumEntries());
        assertEquals(List.of("a=later", "b=B"), listed(store.readOnly(READ_UNCOMMITTED).all()));
        KeyQuery<Bytes, byte[]> key = KeyQuery.withKey(bytes("a"));
        assertEquals("A", text(ask(store, key, READ_COMMITTED).getResult()));
        assertEquals("later", text(ask(store, key, READ_UNCOMMITTED).getResult()));
        RangeQuery<Bytes, byte[]> all = RangeQuery.withNoBounds();
        assertEquals(List.of("a=A", "ab=AB"), listed(ask(store, all, READ_COMMITTED).getResult()));
        store.commit(Map.of(CHANGELOG, 5L));
        assertEquals(List.of("a=later", "b=B"), listed(committed.all()), "a view goes on with its store");
        assertEquals("later", text(ask(store, key, READ_COMMITTED).getResult()));
        store.close();
    }

    @Test
    void windows() {
        WindowStore<Bytes, byte[]> store = open(
                StrataKvStores.window("store", Duration.ofMinutes(10), Duration.ofMinutes(1), false).get());
        store.put(bytes("a"), value("A"), 60_000);
        store.commit(Map.of(CHANGELOG, 1L));
        store.put(bytes("a"), value("later"), 60_000);
        store.put(bytes("a"), value("B"), 120_000);
        // By this the first window expires; before its commit no query at READ_COMMITTED knows.
        store.put(bytes("b"), value("C"), 6_000_000);
        ReadOnlyWindowStore<Bytes, byte[]> committed = store.readOnly(READ_COMMITTED);
        assertEquals("A", text(committed.fetch(bytes("a"), 60_000)));
        assertNull(committed.fetch(bytes("a"), 120_000));
        Instant end = Instant.ofEpochMilli(9_000_000);
        assertEquals(List.of("60000=A"), listed(committed.fetch(bytes("a"), Instant.EPOCH, end)));
        assertEquals(List.of("60000=A"), listed(committed.backwardFetch(bytes("a"), Instant.EPOCH, end)));
        assertEquals(1, listed(committed.all()).size());
        WindowKeyQuery<Bytes, byte[]> query =
                WindowKeyQuery.withKeyAndWindowStartRange(bytes("a"), Instant.EPOCH, end);
        assertEquals(List.of("60000=A"), listed(ask(store, query, READ_COMMITTED).getResult()));
        store.commit(Map.of(CHANGELOG, 4L));
        assertNull(committed.fetch(bytes("a"), 60_000));
        assertEquals("C", text(committed.fetch(bytes("b"), 6_000_000)));
        store.close();
    }

    @Test
    void sessions() {
        SessionStore<Bytes, byte[]> store = open(StrataKvStores.session("store", Duration.ofMinutes(10)).get());
        Windowed<Bytes> first = new Windowed<>(bytes("a"), new SessionWindow(0, 1000));
        Windowed<Bytes> merged = new Windowed<>(bytes("a"), new SessionWindow(0, 2000));
        store.put(first, value("1"));
        store.commit(Map.of(CHANGELOG, 1L));
        store.remove(first);
        store.put(merged, value("2"));
        ReadOnlySessionStore<Bytes, byte[]> committed = store.readOnly(READ_COMMITTED);
        assertEquals("1", text(committed.fetchSession(bytes("a"), 0, 1000)));
        assertNull(committed.fetchSession(bytes("a"), 0, 2000));
        assertEquals(1, listed(committed.fetch(bytes("a"))).size());
        store.commit(Map.of(CHANGELOG, 3L));
        assertEquals("2", text(committed.fetchSession(bytes("a"), 0, 2000)));
        store.close();
    }

    @Test
    void versions() {
        VersionedBytesStore store = (VersionedBytesStore) open(
                StrataKvStores.versionedKeyValue("store", Duration.ofHours(1)).get());
        store.put(bytes("a"), value("one"), 100);
        store.commit(Map.of(CHANGELOG, 1L));
        store.put(bytes("a"), value("two"), 200);
        assertEquals("one", text(store.readOnly(READ_COMMITTED).get(bytes("a"))).substring(8));
        VersionedKeyQuery<Bytes, byte[]> latest = VersionedKeyQuery.withKey(bytes("a"));
        assertEquals("one", text(ask(store, latest, READ_COMMITTED).getResult().value()));
        assertEquals("two", text(ask(store, latest, READ_UNCOMMITTED).getResult().value()));
        MultiVersionedKeyQuery<Bytes, byte[]> all = MultiVersionedKeyQuery.withKey(bytes("a"));
        assertEquals(List.of("one"), versionsOf(ask(store, all, READ_COMMITTED).getResult()));
        store.commit(Map.of(CHANGELOG, 2L));
        assertEquals(List.of("two", "one"), versionsOf(ask(store, all, READ_COMMITTED).getResult()));
        store.close();
    }

    private static List<String> versionsOf(VersionedRecordIterator<byte[]> versions) {
        try (versions) {
            List<String> found = new ArrayList<>();
            while (versions.hasNext()) {
                found.add(text(versions.next().value()));
            }
            return found;
        }
    }

    @Test
    void positionsAreThoseOfTheRecordsThatAreSeen() {
        KeyValueStore<Bytes, byte[]> store = open(StrataKvStores.keyValue("store").get());
        store.getPosition().withComponent("topic", 0, 5L);
        store.commit(Map.of(CHANGELOG, 1L));
        store.getPosition().withComponent("topic", 0, 7L);
        KeyQuery<Bytes, byte[]> query = KeyQuery.withKey(bytes("a"));
        Position five = Position.emptyPosition().withComponent("topic", 0, 5);
        assertEquals(five, ask(store, query, READ_COMMITTED).getPosition());
        PositionBound seven = PositionBound.at(Position.emptyPosition().withComponent("topic", 0, 7));
        assertTrue(store.query(query, seven, new QueryConfig(false, READ_COMMITTED)).isFailure());
        assertTrue(store.query(query, seven, new QueryConfig(false, READ_UNCOMMITTED)).isSuccess());
        store.close();
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void whatWasWrittenBeforeItsCommitIsNotSeen(boolean isExactlyOnce) {
        Properties small = transactional(isExactlyOnce);
        small.put(StrataKvStores.BUFFER_BYTES_CONFIG, "1048576");
        KeyValueStore<Bytes, byte[]> store = Harness.open(StrataKvStores.keyValue("store").get(), folder, 0, small);
        store.put(bytes("key5"), value("committed"));
        store.commit(Map.of(CHANGELOG, 1L));
        ReadOnlyKeyValueStore<Bytes, byte[]> committed = store.readOnly(READ_COMMITTED);
        KeyValueIterator<Bytes, byte[]> begun = null;
        for (int i = 0; i < 400; i++) {
            store.put(bytes("key" + i), new byte[10_000]);
            if (i == 200) {
                begun = committed.all();
            }
        }
        assertEquals("committed", text(committed.get(bytes("key5"))));
        assertNull(committed.get(bytes("key6")));
        assertEquals(List.of("key5=committed"), listed(committed.all()));
        assertEquals(10_000, store.get(bytes("key5")).length);
        store.commit(Map.of(CHANGELOG, 401L));
        assertEquals(10_000, committed.get(bytes("key6")).length);
        assertEquals(400, listed(committed.all()).size());
        assertEquals(List.of("key5=committed"), listed(begun), "a scan goes on with what it began with");
        store.close();
    }

    /** Nobody tells such stores of commits, or late: Kafka's own show everything then too. */
    @Test
    void withoutTransactionalStoresAllIsSeen() {
        KeyValueStore<Bytes, byte[]> store = Harness.open(StrataKvStores.keyValue("store").get(), folder);
        store.put(bytes("a"), value("A"));
        assertEquals("A", text(store.readOnly(READ_COMMITTED).get(bytes("a"))));
        assertEquals("A", text(ask(store, KeyQuery.<Bytes, byte[]>withKey(bytes("a")), READ_COMMITTED).getResult()));
        store.close();
    }

    @Test
    void aViewTakesNoWrites() {
        KeyValueStore<Bytes, byte[]> store = open(StrataKvStores.keyValue("store").get());
        KeyValueStore<Bytes, byte[]> view = (KeyValueStore<Bytes, byte[]>) store.readOnly(READ_COMMITTED);
        Exception refused = assertThrows(UnsupportedOperationException.class, () -> view.put(bytes("a"), value("A")));
        assertTrue(refused.getMessage().contains("write to the store"), refused.getMessage());
        store.close();
    }
}
