package io.stratakv.streams;

import io.stratakv.Durability;
import io.stratakv.Engine;
import io.stratakv.Options;
import java.util.Locale;
import java.util.Map;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.streams.StreamsConfig;

/**
 * What an application's configuration says of its stores. Names are keys of the properties that
 * {@code KafkaStreams} is given.
 *
 * @param memoryBytes cap on native memory of all stores of the application together
 * @param bufferBytes cap on uncommitted writes of all stores together, on Java's heap
 * @param durability what a commit survives
 * @param isExactlyOnce whether uncommitted writes may not be seen after a crash
 * @param isTransactional whether Kafka commits stores with their transactions, and queries may ask
 *     for committed records
 */
record StoreSettings(
        long memoryBytes, long bufferBytes, Durability durability, boolean isExactlyOnce, boolean isTransactional) {
    private static final long MIB = 1 << 20;
    private static final long MEMORY_BYTES_DEFAULT = 256 * MIB;
    private static final long MEMORY_BYTES_MIN = 32 * MIB;
    private static final long BUFFER_BYTES_DEFAULT = 64 * MIB;
    private static final long BUFFER_BYTES_MIN = MIB;
    private static final long REGION_BYTES_MIN = 16 * MIB;
    /** Beside a region that a larger memory was made for. */
    private static final long NATIVE_BYTES_MIN = 16 * MIB;
    private static final long REGION_BYTES_MAX = 1024 * MIB;
    /** A batch is at once in the region's log and in a row; a quarter leaves room for others. */
    private static final long BATCHES_IN_REGION = 4;
    private static final long BATCH_BYTES_MAX = 32 * MIB;
    /** Less is not worth a batch of its own when the buffers are full. */
    static final long WORTH_WRITING_BYTES = 64 << 10;

    static StoreSettings of(Map<String, Object> configuration) {
        long memory = bytes(
                configuration, StrataKvStores.MEMORY_BYTES_CONFIG, MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MIN);
        long buffer = bytes(
                configuration, StrataKvStores.BUFFER_BYTES_CONFIG, BUFFER_BYTES_DEFAULT, BUFFER_BYTES_MIN);
        Object guarantee = configuration.get(StreamsConfig.PROCESSING_GUARANTEE_CONFIG);
        Object transactional = configuration.get(StreamsConfig.TRANSACTIONAL_STATE_STORES_CONFIG);
        return new StoreSettings(
                memory, buffer, durability(configuration),
                guarantee != null && guarantee.toString().startsWith("exactly_once"),
                transactional != null && Boolean.parseBoolean(transactional.toString()));
    }

    /**
     * Part of the memory that takes writes on their way to the tables; fixed when the store is made.
     * Of 98 MiB a quarter takes a third more processor for writes, and a half a tenth more for reads.
     */
    long regionBytes() {
        long share = memoryBytes / 8 * 3 / MIB * MIB;
        return Math.max(REGION_BYTES_MIN, Math.min(REGION_BYTES_MAX, share));
    }

    /** Most bytes that one store writes as one batch, with the region that there is. */
    static long batchBytesMax(long regionBytes) {
        return Math.min(BATCH_BYTES_MAX, regionBytes / BATCHES_IN_REGION);
    }

    /** Whether a store must write its buffer before its commit, by its own bytes and all stores'. */
    boolean isFull(long ownBytes, long allBytes, long regionBytes) {
        return ownBytes >= batchBytesMax(regionBytes) || (allBytes > bufferBytes && ownBytes >= WORTH_WRITING_BYTES);
    }

    Options options() {
        return Options.builder()
                .engine(Engine.MATRIX)
                .durability(durability)
                .regionBytes(regionBytes())
                .memoryBytes(memoryBytes - regionBytes())
                .shards(1)
                .build();
    }

    /** Of a store that is there, with its region: what can change. A store does not keep its durability. */
    Options optionsOfExisting(long regionBytes) {
        return Options.builder()
                .create(false)
                .durability(durability)
                .memoryBytes(Math.max(NATIVE_BYTES_MIN, memoryBytes - regionBytes))
                .build();
    }

    private static Durability durability(Map<String, Object> configuration) {
        Object asked = configuration.get(StrataKvStores.DURABILITY_CONFIG);
        if (asked == null) {
            return Durability.PROCESS_CRASH;
        }
        String word = asked.toString().toUpperCase(Locale.ROOT);
        for (Durability known : new Durability[] {Durability.PROCESS_CRASH, Durability.POWER_LOSS}) {
            if (known.name().equals(word)) {
                return known;
            }
        }
        throw new ConfigException(StrataKvStores.DURABILITY_CONFIG, asked, "use process_crash or power_loss");
    }

    private static long bytes(Map<String, Object> configuration, String name, long preset, long least) {
        Object asked = configuration.get(name);
        if (asked == null) {
            return preset;
        }
        long bytes;
        try {
            bytes = asked instanceof Number number ? number.longValue() : Long.parseLong(asked.toString().trim());
        } catch (NumberFormatException error) {
            throw new ConfigException(name, asked, "it is no number: give a number of bytes, such as " + preset);
        }
        if (bytes < least) {
            throw new ConfigException(name, asked, "it is too small: give at least " + least + " bytes");
        }
        return bytes;
    }
}
