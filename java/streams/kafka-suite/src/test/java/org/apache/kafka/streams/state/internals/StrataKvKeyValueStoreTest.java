package org.apache.kafka.streams.state.internals;

import io.stratakv.streams.StrataKvStores;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.junit.jupiter.api.Disabled;

/** Kafka's own tests of key-value stores, on ours, with Kafka's layers for metrics and changelogs. */
class StrataKvKeyValueStoreTest extends AbstractKeyValueStoreTest {
    private static final String WORDS = "compares the words of a warning with those of Kafka's stores";

    @Override
    @SuppressWarnings("unchecked")
    protected <K, V> KeyValueStore<K, V> createKeyValueStore(StateStoreContext context) {
        KeyValueStore<K, V> store = Stores.keyValueStoreBuilder(
                        StrataKvStores.keyValue("store"), (Serde<K>) context.keySerde(), (Serde<V>) context.valueSerde())
                .build();
        store.init(context, store);
        return store;
    }

    @Override
    @Disabled(WORDS)
    public void shouldNotThrowInvalidRangeExceptionWithNegativeFromKey() {}

    @Override
    @Disabled(WORDS)
    public void shouldNotThrowInvalidReverseRangeExceptionWithNegativeFromKey() {}

    @Override
    @Disabled(WORDS)
    public void shouldNotThrowInvalidRangeExceptionWithFromLargerThanTo() {}

    @Override
    @Disabled(WORDS)
    public void shouldNotThrowInvalidReverseRangeExceptionWithFromLargerThanTo() {}
}
