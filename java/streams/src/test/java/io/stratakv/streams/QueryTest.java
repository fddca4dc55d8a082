package io.stratakv.streams;

import static io.stratakv.streams.Harness.bytes;
import static io.stratakv.streams.Harness.listed;
import static io.stratakv.streams.Harness.text;
import static io.stratakv.streams.Harness.value;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.io.File;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.query.FailureReason;
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
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.VersionedBytesStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.VersionedRecordIterator;
import org.apache.kafka.streams.state.WindowStore;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class QueryTest {
    @TempDir
    File folder;

    private static <R> QueryResult<R> ask(StateStore store, Query<R> query) {
        return store.query(query, PositionBound.unbounded(), new QueryConfig(false));
    }

    @Test
    void keysAndRanges() {
        KeyValueStore<Bytes, byte[]> store = Harness.open(StrataKvStores.keyValue("store").get(), folder);
        store.put(bytes("a"), value("A"));
        store.put(bytes("b"), value("B"));
        assertEquals("A", text(ask(store, KeyQuery.<Bytes, byte[]>withKey(bytes("a"))).getResult()));
        assertEquals(
                List.of("a=A", "b=B"), listed(ask(store, RangeQuery.<Bytes, byte[]>withNoBounds()).getResult()));
        assertEquals(
                List.of("b=B"), listed(ask(store, RangeQuery.<Bytes, byte[]>withLowerBound(bytes("b"))).getResult()));
        store.close();
    }

    @Test
    void windows() {
        WindowStore<Bytes, byte[]> store = Harness.open(
                StrataKvStores.window("store", Duration.ofHours(1), Duration.ofMinutes(1), false).get(), folder);
        store.put(bytes("a"), value("A"), 60_000);
        store.put(bytes("a"), value("B"), 120_000);
        WindowKeyQuery<Bytes, byte[]> query = WindowKeyQuery.withKeyAndWindowStartRange(
                bytes("a"), Instant.ofEpochMilli(60_000), Instant.ofEpochMilli(119_999));
        assertEquals(List.of("60000=A"), listed(ask(store, query).getResult()));
        store.close();
    }

    @Test
    void versions() {
        VersionedBytesStore store = (VersionedBytesStore) Harness.open(
                StrataKvStores.versionedKeyValue("store", Duration.ofHours(1)).get(), folder, 0,
                Harness.configuration(false));
        store.put(bytes("a"), value("one"), 100);
        store.put(bytes("a"), value("three"), 300);
        store.put(bytes("a"), value("two"), 200);
        store.put(bytes("a"), null, 400);
        store.put(bytes("a"), value("five"), 500);
        VersionedKeyQuery<Bytes, byte[]> at = VersionedKeyQuery.<Bytes, byte[]>withKey(bytes("a")).asOf(Instant.ofEpochMilli(250));
        assertEquals("two", text(ask(store, at).getResult().value()));
        MultiVersionedKeyQuery<Bytes, byte[]> all = MultiVersionedKeyQuery.<Bytes, byte[]>withKey(bytes("a"))
                .fromTime(Instant.ofEpochMilli(150)).toTime(Instant.ofEpochMilli(600)).withAscendingTimestamps();
        List<String> found = new ArrayList<>();
        try (VersionedRecordIterator<byte[]> versions = ask(store, all).getResult()) {
            while (versions.hasNext()) {
                VersionedRecord<byte[]> version = versions.next();
                found.add(text(version.value()) + " " + version.timestamp() + " " + version.validTo());
            }
        }
        assertEquals(
                List.of("one 100 Optional[200]", "two 200 Optional[300]", "three 300 Optional[400]", "five 500 Optional.empty"), found);
        PositionBound ahead = PositionBound.at(Position.emptyPosition().withComponent("topic", 0, 9));
        assertEquals(
                FailureReason.NOT_UP_TO_BOUND, store.query(all, ahead, new QueryConfig(false)).getFailureReason());
        store.close();
    }

    @Test
    void positionsAreKeptWithTheirRecords() {
        KeyValueStore<Bytes, byte[]> store = Harness.open(StrataKvStores.keyValue("store").get(), folder);
        store.getPosition().withComponent("topic", 0, 5L);
        store.commit(Map.of(new TopicPartition("changelog", 0), 1L));
        store.getPosition().withComponent("topic", 0, 7L);
        store.close();
        store = Harness.open(StrataKvStores.keyValue("store").get(), folder);
        assertEquals(Position.emptyPosition().withComponent("topic", 0, 5L), store.getPosition());
        PositionBound reached = PositionBound.at(Position.emptyPosition().withComponent("topic", 0, 5));
        KeyQuery<Bytes, byte[]> query = KeyQuery.withKey(bytes("a"));
        assertFalse(store.query(query, reached, new QueryConfig(false)).isFailure());
        PositionBound ahead = PositionBound.at(Position.emptyPosition().withComponent("topic", 0, 6));
        assertEquals(
                FailureReason.NOT_UP_TO_BOUND, store.query(query, ahead, new QueryConfig(false)).getFailureReason());
        store.close();
    }
}
