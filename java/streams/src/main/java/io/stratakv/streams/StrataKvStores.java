package io.stratakv.streams;

import java.time.Duration;
import java.util.Objects;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.VersionedBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;

/**
 * Suppliers of stores for Kafka Streams, as {@link org.apache.kafka.streams.state.Stores} has them
 * for RocksDB.
 *
 * <pre>{@code
 * Stores.keyValueStoreBuilder(StrataKvStores.keyValue("counts"), Serdes.String(), Serdes.Long())
 * }</pre>
 *
 * To change all stores of the DSL at once, see {@link StrataKvDslStoreSuppliers}.
 */
public final class StrataKvStores {
    /**
     * Cap on native memory of all stores of an application in this process together, in bytes: index,
     * caches, and writes on their way to the disk. Default: 256 MiB; at least 32 MiB.
     */
    public static final String MEMORY_BYTES_CONFIG = "stratakv.memory.bytes";

    /**
     * Cap on writes since the last commit of all stores of an application in this process together,
     * in bytes on Java's heap. Default: 64 MiB; at least 1 MiB.
     */
    public static final String BUFFER_BYTES_CONFIG = "stratakv.buffer.bytes";

    /**
     * What a commit survives: {@code process_crash} (default), the death of the process, or
     * {@code power_loss}, that of the machine. It may change with each start.
     */
    public static final String DURABILITY_CONFIG = "stratakv.durability";

    private StrataKvStores() {}

    /**
     * A store of keys and values.
     *
     * @param name the store's name
     * @return its supplier
     */
    public static KeyValueBytesStoreSupplier keyValue(String name) {
        return Suppliers.keyValue(named(name), ValueForm.PLAIN);
    }

    /**
     * A store of keys, values and their timestamps: the one for tables of the DSL.
     *
     * @param name the store's name
     * @return its supplier
     */
    public static KeyValueBytesStoreSupplier timestampedKeyValue(String name) {
        return Suppliers.keyValue(named(name), ValueForm.TIMESTAMPED);
    }

    /**
     * A store of the versions of keys.
     *
     * @param name the store's name
     * @param historyRetention how far back versions may be asked for, and how late they may come
     * @return its supplier
     */
    public static VersionedBytesStoreSupplier versionedKeyValue(String name, Duration historyRetention) {
        return Suppliers.versioned(named(name), milliseconds(historyRetention, "historyRetention"));
    }

    /**
     * A store of windows.
     *
     * @param name the store's name
     * @param retention how long windows are kept after their start; at least the window's size
     * @param windowSize the length of a window
     * @param retainDuplicates whether a key may have several values in a window
     * @return its supplier
     */
    public static WindowBytesStoreSupplier window(
            String name, Duration retention, Duration windowSize, boolean retainDuplicates) {
        return windows(name, retention, windowSize, retainDuplicates, ValueForm.PLAIN);
    }

    /**
     * A store of windows whose values have timestamps: the one for windowed aggregations of the DSL.
     *
     * @param name the store's name
     * @param retention how long windows are kept after their start; at least the window's size
     * @param windowSize the length of a window
     * @param retainDuplicates whether a key may have several values in a window
     * @return its supplier
     */
    public static WindowBytesStoreSupplier timestampedWindow(
            String name, Duration retention, Duration windowSize, boolean retainDuplicates) {
        return windows(name, retention, windowSize, retainDuplicates, ValueForm.TIMESTAMPED);
    }

    private static WindowBytesStoreSupplier windows(
            String name, Duration retention, Duration windowSize, boolean retainDuplicates, ValueForm form) {
        long retentionMs = milliseconds(retention, "retention");
        long windowMs = milliseconds(windowSize, "windowSize");
        if (windowMs > retentionMs) {
            throw new IllegalArgumentException(
                    "Store " + name + ": a retention of " + retentionMs + " ms is shorter than the window of " + windowMs
                            + " ms; give a retention of at least the window's size");
        }
        return Suppliers.window(named(name), retentionMs, windowMs, retainDuplicates, form);
    }

    /**
     * A store of sessions.
     *
     * @param name the store's name
     * @param retention how long sessions are kept after their end
     * @return its supplier
     */
    public static SessionBytesStoreSupplier session(String name, Duration retention) {
        return Suppliers.session(named(name), milliseconds(retention, "retention"), ValueForm.PLAIN);
    }

    private static String named(String name) {
        return Objects.requireNonNull(name, "name");
    }

    private static long milliseconds(Duration duration, String what) {
        long milliseconds;
        try {
            milliseconds = Objects.requireNonNull(duration, what).toMillis();
        } catch (ArithmeticException error) {
            throw new IllegalArgumentException(what + " of " + duration + " is too long: give one in milliseconds", error);
        }
        if (milliseconds < 0) {
            throw new IllegalArgumentException(what + " of " + duration + " is negative: give 0 or more");
        }
        return milliseconds;
    }
}
