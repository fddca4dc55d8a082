/**
 * State stores for Kafka Streams on StrataKV.
 *
 * <p>An application says {@code dsl.store.suppliers.class=io.stratakv.streams.StrataKvDslStoreSuppliers},
 * or gives a supplier of {@link io.stratakv.streams.StrataKvStores} to one store.
 */
package io.stratakv.streams;
