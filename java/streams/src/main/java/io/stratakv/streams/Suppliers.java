package io.stratakv.streams;

import java.util.function.Supplier;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.HeadersBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.VersionedBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.internals.VersionedKeyValueToBytesStoreAdapter;

/**
 * What Kafka asks for new stores. Each {@code get} makes one that is not opened yet. Kafka tells by
 * the type of a supplier, and of its store, whether values have timestamps and headers.
 */
final class Suppliers {
    private Suppliers() {}

    static KeyValueBytesStoreSupplier keyValue(String name, ValueForm form) {
        return switch (form) {
            case PLAIN -> new KeyValue(name, () -> new IsolatedKeyValueStore(name));
            case TIMESTAMPED -> new KeyValue(name, () -> new IsolatedKeyValueStore.Timestamped(name));
            case HEADERS -> new KeyValueWithHeaders(name, () -> new IsolatedKeyValueStore.WithHeaders(name));
        };
    }

    static VersionedBytesStoreSupplier versioned(String name, long historyMs) {
        return new Versioned(name, historyMs);
    }

    static WindowBytesStoreSupplier window(
            String name, long retentionMs, long windowMs, boolean keepsDuplicates, ValueForm form) {
        Times times = new Times(retentionMs, windowMs, keepsDuplicates);
        return switch (form) {
            case PLAIN -> new Window(name, times, () -> new WindowBytesStore(name, times));
            case TIMESTAMPED -> new Window(name, times, () -> new WindowBytesStore.Timestamped(name, times));
            case HEADERS -> new WindowWithHeaders(name, times, () -> new WindowBytesStore.WithHeaders(name, times));
        };
    }

    static SessionBytesStoreSupplier session(String name, long retentionMs, ValueForm form) {
        return form == ValueForm.HEADERS
                ? new SessionWithHeaders(name, retentionMs, () -> new SessionBytesStore.WithHeaders(name, retentionMs))
                : new Session(name, retentionMs, () -> new SessionBytesStore(name, retentionMs));
    }

    /** What a store of windows is made with. */
    record Times(long retentionMs, long windowMs, boolean keepsDuplicates) {}

    private static class Named<S> {
        private final String name;
        private final Supplier<S> stores;

        Named(String name, Supplier<S> stores) {
            this.name = name;
            this.stores = stores;
        }

        public String name() {
            return name;
        }

        public S get() {
            return stores.get();
        }

        public String metricsScope() {
            return StoreMetrics.SCOPE;
        }
    }

    private static class KeyValue extends Named<KeyValueStore<Bytes, byte[]>> implements KeyValueBytesStoreSupplier {
        KeyValue(String name, Supplier<KeyValueStore<Bytes, byte[]>> stores) {
            super(name, stores);
        }
    }

    private static final class KeyValueWithHeaders extends KeyValue implements HeadersBytesStoreSupplier {
        KeyValueWithHeaders(String name, Supplier<KeyValueStore<Bytes, byte[]>> stores) {
            super(name, stores);
        }
    }

    private static final class Versioned extends Named<KeyValueStore<Bytes, byte[]>>
            implements VersionedBytesStoreSupplier {
        private final long historyMs;

        Versioned(String name, long historyMs) {
            super(name, () -> new VersionedKeyValueToBytesStoreAdapter(new VersionedBytesKeyValueStore(name, historyMs)));
            this.historyMs = historyMs;
        }

        @Override
        public long historyRetentionMs() {
            return historyMs;
        }
    }

    private static class Window extends Named<WindowStore<Bytes, byte[]>> implements WindowBytesStoreSupplier {
        private final Times times;

        Window(String name, Times times, Supplier<WindowStore<Bytes, byte[]>> stores) {
            super(name, stores);
            this.times = times;
        }

        @Override
        public long segmentIntervalMs() {
            return SegmentedStore.segmentMs(times.retentionMs());
        }

        @Override
        public long windowSize() {
            return times.windowMs();
        }

        @Override
        public boolean retainDuplicates() {
            return times.keepsDuplicates();
        }

        @Override
        public long retentionPeriod() {
            return times.retentionMs();
        }
    }

    private static final class WindowWithHeaders extends Window implements HeadersBytesStoreSupplier {
        WindowWithHeaders(String name, Times times, Supplier<WindowStore<Bytes, byte[]>> stores) {
            super(name, times, stores);
        }
    }

    private static class Session extends Named<SessionStore<Bytes, byte[]>> implements SessionBytesStoreSupplier {
        private final long retentionMs;

        Session(String name, long retentionMs, Supplier<SessionStore<Bytes, byte[]>> stores) {
            super(name, stores);
            this.retentionMs = retentionMs;
        }

        @Override
        public long segmentIntervalMs() {
            return SegmentedStore.segmentMs(retentionMs);
        }

        @Override
        public long retentionPeriod() {
            return retentionMs;
        }
    }

    private static final class SessionWithHeaders extends Session implements HeadersBytesStoreSupplier {
        SessionWithHeaders(String name, long retentionMs, Supplier<SessionStore<Bytes, byte[]>> stores) {
            super(name, retentionMs, stores);
        }
    }
}
