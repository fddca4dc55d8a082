package org.apache.kafka.streams.state.internals;

import io.stratakv.streams.StrataKvStores;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.junit.jupiter.api.Disabled;

/** Kafka's own tests of window stores, on ours, with Kafka's layers for metrics and changelogs. */
class StrataKvWindowStoreTest extends AbstractWindowBytesStoreTest {
    @Override
    <K, V> WindowStore<K, V> buildWindowStore(
            long retentionMs, long windowMs, boolean retainDuplicates, Serde<K> keys, Serde<V> values) {
        return Stores.windowStoreBuilder(
                        StrataKvStores.window(
                                "store", Duration.ofMillis(retentionMs), Duration.ofMillis(windowMs), retainDuplicates),
                        keys, values)
                .build();
    }

    @Override
    @Disabled("compares the words of a warning with those of Kafka's stores")
    public void shouldNotThrowInvalidRangeExceptionWithNegativeFromKey() {}
}
