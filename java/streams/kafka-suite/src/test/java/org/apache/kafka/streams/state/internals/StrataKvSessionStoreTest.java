package org.apache.kafka.streams.state.internals;

import io.stratakv.streams.StrataKvStores;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.junit.jupiter.api.Disabled;

/** Kafka's own tests of session stores, on ours, with Kafka's layers for metrics and changelogs. */
class StrataKvSessionStoreTest extends AbstractSessionBytesStoreTest {
    @Override
    <K, V> SessionStore<K, V> buildSessionStore(long retentionMs, Serde<K> keys, Serde<V> values) {
        return Stores.sessionStoreBuilder(
                        StrataKvStores.session("store", Duration.ofMillis(retentionMs)), keys, values)
                .build();
    }

    /** Sessions expire exactly, and all are found by time: so Kafka's store in memory does it. */
    @Override
    StoreType storeType() {
        return StoreType.InMemoryStore;
    }

    @Override
    @Disabled("compares the words of a warning with those of Kafka's stores")
    public void shouldNotThrowInvalidRangeExceptionWithNegativeFromKey() {}

    @Override
    @Disabled("asks a closed store, and wants no records; ours refuses then, as key-value stores do")
    public void shouldRestore() {}
}
