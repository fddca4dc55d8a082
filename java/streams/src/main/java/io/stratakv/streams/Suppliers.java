package io.stratakv.streams;

import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.VersionedBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.internals.VersionedKeyValueToBytesStoreAdapter;

/** What Kafka asks for new stores. Each {@code get} makes one that is not opened yet. */
final class Suppliers {
    private Suppliers() {}

    record KeyValue(String name, boolean isTimestamped) implements KeyValueBytesStoreSupplier {
        @Override
        public KeyValueStore<Bytes, byte[]> get() {
            return isTimestamped ? new KeyValueBytesStore.Timestamped(name) : new KeyValueBytesStore(name);
        }

        @Override
        public String metricsScope() {
            return StoreMetrics.SCOPE;
        }
    }

    record Versioned(String name, long historyRetentionMs) implements VersionedBytesStoreSupplier {
        @Override
        public KeyValueStore<Bytes, byte[]> get() {
            return new VersionedKeyValueToBytesStoreAdapter(new VersionedBytesKeyValueStore(name, historyRetentionMs));
        }

        @Override
        public String metricsScope() {
            return StoreMetrics.SCOPE;
        }
    }

    record Window(String name, long retentionPeriod, long windowSize, boolean retainDuplicates, boolean isTimestamped)
            implements WindowBytesStoreSupplier {
        @Override
        public WindowStore<Bytes, byte[]> get() {
            return isTimestamped
                    ? new WindowBytesStore.Timestamped(name, retentionPeriod, windowSize, retainDuplicates)
                    : new WindowBytesStore(name, retentionPeriod, windowSize, retainDuplicates);
        }

        @Override
        public String metricsScope() {
            return StoreMetrics.SCOPE;
        }

        @Override
        public long segmentIntervalMs() {
            return SegmentedStore.segmentMs(retentionPeriod);
        }
    }

    record Session(String name, long retentionPeriod) implements SessionBytesStoreSupplier {
        @Override
        public SessionStore<Bytes, byte[]> get() {
            return new SessionBytesStore(name, retentionPeriod);
        }

        @Override
        public String metricsScope() {
            return StoreMetrics.SCOPE;
        }

        @Override
        public long segmentIntervalMs() {
            return SegmentedStore.segmentMs(retentionPeriod);
        }
    }
}
