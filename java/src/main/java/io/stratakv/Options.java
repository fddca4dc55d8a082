package io.stratakv;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.stream.Collectors;

/**
 * How to open a store. What is not set is fitted to the machine, or as the store was made.
 *
 * <pre>{@code
 * Options options = Options.builder().engine(Engine.HASH).regionBytes(1 << 30).build();
 * }</pre>
 */
public final class Options {
    private final List<Setting> settings;
    private final List<Named> orders;

    private Options(Builder builder) {
        settings = List.copyOf(builder.settings);
        orders = List.copyOf(builder.orders);
    }

    private record Setting(String name, byte[] value) {
        @Override
        public String toString() {
            return name + "=" + new String(value, 0, value.length - 1, StandardCharsets.UTF_8);
        }
    }

    private record Named(String name, Order order) {}

    /**
     * Nothing set.
     *
     * @return the options
     */
    public static Options defaults() {
        return builder().build();
    }

    /**
     * Begins.
     *
     * @return a builder
     */
    public static Builder builder() {
        return new Builder();
    }

    /**
     * What is set, as a log shows it: {@code engine=hash, region_bytes=1073741824}.
     *
     * @return the names of the C interface, each with its value, in the order of the calls
     */
    @Override
    public String toString() {
        return settings.stream().map(Setting::toString).collect(Collectors.joining(", "));
    }

    /** These options in native memory, and what they call: that must be kept for as long as a store that was opened with them. */
    Made make() {
        Library.bind();
        Made made = new Made(Calls.stratakv_options_new(), new ArrayList<>());
        try {
            long[] message = new long[1];
            for (Setting setting : settings) {
                byte[] name = NativeText.of(setting.name, "option's name");
                Outcome.check(Calls.stratakv_options_set(made.address, name, setting.value, message), message);
            }
            for (Named named : orders) {
                byte[] name = NativeText.of(named.name, "order's name");
                SortKeys sortKeys = new SortKeys(named.order);
                made.called.add(sortKeys);
                Outcome.check(Calls.stratakv_options_order(made.address, name, sortKeys, 0, message), message);
            }
            return made;
        } catch (RuntimeException error) {
            made.close();
            throw error;
        }
    }

    record Made(long address, List<SortKeys> called) implements AutoCloseable {
        @Override
        public void close() {
            Calls.stratakv_options_free(address);
        }
    }

    /** Gathers options. What is set twice is as it was set last, but for paths and orders: those add up. Bad values are told when a store is opened. */
    public static final class Builder {
        private final List<Setting> settings = new ArrayList<>();
        private final List<Named> orders = new ArrayList<>();

        private Builder() {}

        /**
         * Whether to make the store if there is none; if nothing is said, it is made.
         *
         * @param yes whether
         * @return this
         */
        public Builder create(boolean yes) {
            return set("create", yes);
        }

        /**
         * Whether to make the store, and fail if there is one; if nothing is said, no.
         *
         * @param yes whether
         * @return this
         */
        public Builder createNew(boolean yes) {
            return set("create_new", yes);
        }

        /**
         * Whether to open it for reading: nothing on the medium is changed.
         *
         * @param yes whether
         * @return this
         */
        public Builder readOnly(boolean yes) {
            return set("read_only", yes);
        }

        /**
         * The engine; fixed when the store is made. Another one than it has is an error.
         *
         * @param engine the engine
         * @return this
         */
        public Builder engine(Engine engine) {
            return word("engine", engine);
        }

        /**
         * When writes are acknowledged. What the medium or engine cannot give is refused when the store is opened.
         *
         * @param durability the level
         * @return this
         */
        public Builder durability(Durability durability) {
            return word("durability", durability);
        }

        /**
         * Most memory for index, caches and buffers together; 1 GiB if nothing is said. It is not of Java's heap.
         *
         * @param bytes at least 1 MiB for each shard
         * @return this
         */
        public Builder memoryBytes(long bytes) {
            return set("memory_bytes", bytes);
        }

        /**
         * Most bytes that the store may take on disk; 0 for no limit.
         *
         * @param bytes how many
         * @return this
         */
        public Builder capacityBytes(long bytes) {
            return set("capacity_bytes", bytes);
        }

        /**
         * Length of the region of {@link Engine#HASH} or {@link Engine#MATRIX}.
         *
         * @param bytes a multiple of 4096, at least 1 MiB
         * @return this
         */
        public Builder regionBytes(long bytes) {
            return set("region_bytes", bytes);
        }

        /**
         * Where the region lies if not in the store's directory: a file, on a file system with DAX, say, or a device. Several are one region.
         *
         * @param path the file or device
         * @return this
         */
        public Builder regionPath(Path path) {
            return path("region_path", path);
        }

        /**
         * One more directory, on another disk: shards are spread over all of them. Fixed when the store is made.
         *
         * @param path the directory
         * @return this
         */
        public Builder directory(Path path) {
            return path("directory", path);
        }

        /**
         * A raw block device for volumes; one of several. Fixed when the store is made.
         *
         * @param path the device
         * @return this
         */
        public Builder device(Path path) {
            return path("device", path);
        }

        /**
         * Where {@link Engine#SLAB} puts small records; fixed when the store is made.
         *
         * @param placement where
         * @return this
         */
        public Builder placement(Placement placement) {
            return word("placement", placement);
        }

        /**
         * What carries I/O.
         *
         * @param io what
         * @return this
         */
        public Builder io(IoBackend io) {
            return word("io", io);
        }

        /**
         * Number of shards, 1 to 1,024; fixed when the store is made. One for each core if nothing is said.
         *
         * @param shards how many
         * @return this
         */
        public Builder shards(int shards) {
            return set("shards", shards);
        }

        /**
         * Most requests in flight on the device, 1 to 4,096.
         *
         * @param requests how many
         * @return this
         */
        public Builder depth(int requests) {
            return set("depth", requests);
        }

        /**
         * Threads in the background.
         *
         * @param threads how many
         * @return this
         */
        public Builder cores(int threads) {
            return set("cores", threads);
        }

        /**
         * Registers an order, for {@link Store#collectionInOrder}. A store with collections in an order must be opened with it to use them.
         *
         * @param name 1 to 64 letters, digits, {@code -}, {@code _} and {@code .}, not beginning with {@code stratakv.}
         * @param order the order; it is kept for as long as the store is open
         * @return this
         */
        public Builder order(String name, Order order) {
            orders.add(new Named(Objects.requireNonNull(name, "name"), Objects.requireNonNull(order, "order")));
            return this;
        }

        /**
         * Ends.
         *
         * @return the options
         */
        public Options build() {
            return new Options(this);
        }

        private Builder set(String name, Object value) {
            settings.add(new Setting(name, NativeText.of(value.toString(), name)));
            return this;
        }

        private Builder word(String name, Enum<?> value) {
            return set(name, Objects.requireNonNull(value, name).name().toLowerCase(Locale.ROOT));
        }

        private Builder path(String name, Path path) {
            settings.add(new Setting(name, NativeText.of(Objects.requireNonNull(path, "path"), name)));
            return this;
        }
    }
}
