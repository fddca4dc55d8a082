package io.stratakv.streams;

import org.apache.kafka.streams.state.DslKeyValueParams;
import org.apache.kafka.streams.state.DslSessionParams;
import org.apache.kafka.streams.state.DslStoreSuppliers;
import org.apache.kafka.streams.state.DslWindowParams;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;

/**
 * Makes StrataKV the store of everything that an application's DSL keeps, by one line of its
 * configuration: {@code dsl.store.suppliers.class=io.stratakv.streams.StrataKvDslStoreSuppliers}.
 */
public final class StrataKvDslStoreSuppliers implements DslStoreSuppliers {
    /** Kafka makes one by its class's name. */
    public StrataKvDslStoreSuppliers() {}

    @Override
    public KeyValueBytesStoreSupplier keyValueStore(DslKeyValueParams parameters) {
        return Suppliers.keyValue(parameters.name(), ValueForm.of(parameters.dslStoreFormat()));
    }

    @Override
    public WindowBytesStoreSupplier windowStore(DslWindowParams parameters) {
        return Suppliers.window(
                parameters.name(), parameters.retentionPeriod().toMillis(), parameters.windowSize().toMillis(),
                parameters.retainDuplicates(), ValueForm.of(parameters.dslStoreFormat()));
    }

    @Override
    public SessionBytesStoreSupplier sessionStore(DslSessionParams parameters) {
        return Suppliers.session(
                parameters.name(), parameters.retentionPeriod().toMillis(), ValueForm.of(parameters.storeFormat()));
    }
}
