package io.stratakv;

import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.function.Function;

/**
 * A key space of its own. Every method may be called by any number of threads at once; it throws {@link StrataKvException} where the key or value is bad, the engine does not offer it, or the store failed, and
 * {@link IllegalStateException} once the collection or its store is closed. Writes return when they are durable.
 */
public sealed class Collection implements AutoCloseable permits Store {
    /** The time to live of a record that does not expire. */
    public static final Duration FOREVER = ChronoUnit.FOREVER.getDuration();

    private final Handle handle;
    private final long address;
    /** Null of a store; else it keeps that one from being closed as unreachable. */
    private final Store store;

    Collection(Handle handle, long address, Store store) {
        this.handle = handle;
        this.address = address;
        this.store = store;
    }

    Handle handle() {
        return handle;
    }

    /** A call on this collection. */
    final Handle.Use use() {
        return handle.use(address);
    }

    /**
     * Whose collection it is.
     *
     * @return the store; of a store, itself
     */
    public final Store store() {
        return this instanceof Store itself ? itself : store;
    }

    /** Frees the handle; the collection in the store stays. Of a {@link Store} it closes that. */
    @Override
    public void close() {
        handle.run();
    }

    /**
     * Reads a record. Costs one read of the device if it is not in memory.
     *
     * @param key the key
     * @return the record, if there is one
     */
    public final Optional<Record> get(byte[] key) {
        Objects.requireNonNull(key, "key");
        return key.length < Scratch.ROOM ? getInto(key) : getWhole(key);
    }

    /** The value comes into the room behind the key, if it finds place there. */
    private Optional<Record> getInto(byte[] key) {
        try (Handle.Use use = use(); Scratch scratch = Scratch.take()) {
            scratch.put(0, key);
            long room = scratch.room() + key.length;
            int status = Calls.stratakv_get_into(
                    use.address(), scratch.room(), key.length, room, Scratch.ROOM - key.length, scratch.record(),
                    scratch.message());
            return Outcome.takeRecord(status, scratch);
        }
    }

    private Optional<Record> getWhole(byte[] key) {
        try (Handle.Use use = use()) {
            long[] record = new long[Outcome.RECORD_WORDS];
            long[] message = new long[1];
            return Outcome.takeRecord(
                    Calls.stratakv_get(use.address(), key, key.length, record, message), record, message);
        }
    }

    /**
     * Reads a record whose key is text, in UTF-8.
     *
     * @param key the key
     * @return the record, if there is one
     */
    public final Optional<Record> get(String key) {
        return get(utf8(key, "key"));
    }

    /**
     * Reads several records at once: their I/O overlaps. Not one moment: each is read as it is then.
     *
     * @param keys the keys
     * @return a record, or none, for each of them
     */
    public final List<Optional<Record>> multiGet(List<byte[]> keys) {
        try (Pieces pieces = Pieces.all(keys, "keys"); Handle.Use use = use()) {
            int count = pieces.lens.length;
            long[] records = new long[Math.multiplyExact(count, Outcome.RECORD_WORDS)];
            long[] message = new long[1];
            int status = Calls.stratakv_multi_get(
                    use.address(), count, pieces.addresses, pieces.lens, records, message);
            Outcome.check(status, message);
            return takeAll(records, count);
        }
    }

    /** Takes records one after the other; if there is no memory for one of them, none of the rest is lost. */
    static List<Optional<Record>> takeAll(long[] records, int count) {
        try {
            List<Optional<Record>> taken = new ArrayList<>(count);
            for (int i = 0; i < count; i++) {
                taken.add(Outcome.takeRecord(records, i * Outcome.RECORD_WORDS));
            }
            return taken;
        } finally {
            for (int i = 0; i < count; i++) {
                Outcome.free(records, i * Outcome.RECORD_WORDS);
            }
        }
    }

    /**
     * Sets a record.
     *
     * @param key the key
     * @param value the value
     * @return its version
     */
    public final long put(byte[] key, byte[] value) {
        return put(key, value, PutOptions.defaults()).orElseThrow();
    }

    /**
     * Sets a record whose key and value are text, in UTF-8.
     *
     * @param key the key
     * @param value the value
     * @return its version
     */
    public final long put(String key, String value) {
        return put(utf8(key, "key"), utf8(value, "value"));
    }

    /**
     * Sets a record, under a condition if one is given.
     *
     * @param key the key
     * @param value the value
     * @param options flags, expiry and condition
     * @return its version; empty if the condition does not hold: then nothing was changed
     */
    public final OptionalLong put(byte[] key, byte[] value, PutOptions options) {
        Objects.requireNonNull(key, "key");
        Objects.requireNonNull(value, "value");
        long[] words = Objects.requireNonNull(options, "options").words();
        try (Handle.Use use = use()) {
            long[] version = new long[1];
            long[] message = new long[1];
            int status = Calls.stratakv_put(
                    use.address(), key, key.length, value, value.length, words, version, message);
            return written(status, version, message);
        }
    }

    static OptionalLong written(int status, long[] version, long[] message) {
        return Outcome.isOk(status, message) ? OptionalLong.of(version[0]) : OptionalLong.empty();
    }

    /**
     * Removes a record.
     *
     * @param key the key
     * @return whether there was one
     */
    public final boolean delete(byte[] key) {
        Objects.requireNonNull(key, "key");
        try (Handle.Use use = use()) {
            long[] message = new long[1];
            return Outcome.isOk(Calls.stratakv_delete(use.address(), key, key.length, message), message);
        }
    }

    /**
     * Removes a record whose key is text, in UTF-8.
     *
     * @param key the key
     * @return whether there was one
     */
    public final boolean delete(String key) {
        return delete(utf8(key, "key"));
    }

    /**
     * Changes a record in dependence on itself, as one step. Costs a read and a conditional write; both again whenever somebody else was faster.
     *
     * @param key the key
     * @param next decides about the record, empty if there is none; it may run several times. What it throws comes out, and nothing was changed
     * @return the new version; empty if nothing was changed
     */
    public final OptionalLong fetchUpdate(byte[] key, Function<Optional<Record>, Next> next) {
        Objects.requireNonNull(key, "key");
        try (Deciding deciding = new Deciding(Objects.requireNonNull(next, "next")); Handle.Use use = use()) {
            long[] version = new long[1];
            long[] message = new long[1];
            int status = Calls.stratakv_fetch_update(
                    use.address(), key, key.length, Deciding.DECIDE, 0, version, message);
            deciding.throwThrown();
            Outcome.check(status, message);
            return version[0] == 0 ? OptionalLong.empty() : OptionalLong.of(version[0]);
        }
    }

    /** A {@link #fetchUpdate} under way in this thread. One native function serves all: to make one costs far more than to call it. */
    private static final class Deciding implements AutoCloseable {
        private static final ThreadLocal<Deciding> HERE = new ThreadLocal<>();

        static final Calls.Decide DECIDE = (context, before, replacement) -> HERE.get().decide(before, replacement);

        /** A function may update another record: this is the one whose turn it is afterwards. */
        private final Deciding outer = HERE.get();
        private final Function<Optional<Record>, Next> function;
        private Memory value;
        private Throwable thrown;

        Deciding(Function<Optional<Record>, Next> function) {
            this.function = function;
            HERE.set(this);
        }

        private int decide(Pointer before, Pointer replacement) {
            try {
                thrown = null;
                Optional<Record> record = Outcome.record(before);
                Next next = Objects.requireNonNull(
                        Callbacks.deciding(() -> function.apply(record)), "what the function returned");
                if (next.value != null) {
                    fill(replacement, next);
                }
                return next.action;
            } catch (Throwable error) {
                thrown = error;
                return Next.keep().action;
            }
        }

        private void fill(Pointer replacement, Next next) {
            release();
            value = new Memory(Math.max(1, next.value.length));
            value.write(0, next.value, 0, next.value.length);
            replacement.setPointer(0, value);
            replacement.setLong(8, next.value.length);
            replacement.setLong(16, next.options.expiryMs());
            replacement.setInt(24, next.options.flags());
        }

        void throwThrown() {
            if (thrown != null) {
                throw Callbacks.rethrow(thrown);
            }
        }

        private void release() {
            if (value != null) {
                value.close();
                value = null;
            }
        }

        @Override
        public void close() {
            if (outer == null) {
                HERE.remove();
            } else {
                HERE.set(outer);
            }
            release();
        }
    }

    /**
     * Adds to a counter of decimal digits, wrapping at 64 bits; one that does not exist counts from 0.
     *
     * @param key the key
     * @param by how much, unsigned
     * @return the sum, unsigned
     * @throws StrataKvException the record is no number
     */
    public final long increment(byte[] key, long by) {
        Objects.requireNonNull(key, "key");
        try (Handle.Use use = use()) {
            long[] sum = new long[1];
            long[] message = new long[1];
            Outcome.check(Calls.stratakv_increment(use.address(), key, key.length, by, sum, message), message);
            return sum[0];
        }
    }

    /**
     * Subtracts from a counter, stopping at 0.
     *
     * @param key the key
     * @param by how much, unsigned
     * @return what is left, unsigned
     * @throws StrataKvException the record is no number
     */
    public final long decrement(byte[] key, long by) {
        Objects.requireNonNull(key, "key");
        try (Handle.Use use = use()) {
            long[] left = new long[1];
            long[] message = new long[1];
            Outcome.check(Calls.stratakv_decrement(use.address(), key, key.length, by, left, message), message);
            return left[0];
        }
    }

    /**
     * Adds bytes behind a value, as one step.
     *
     * @param key the key
     * @param value the bytes
     * @return whether there is a record; if not, none is made
     */
    public final boolean append(byte[] key, byte[] value) {
        Objects.requireNonNull(key, "key");
        Objects.requireNonNull(value, "value");
        try (Handle.Use use = use()) {
            long[] message = new long[1];
            int status = Calls.stratakv_append(use.address(), key, key.length, value, value.length, message);
            return Outcome.isOk(status, message);
        }
    }

    /**
     * Adds bytes before a value, as one step.
     *
     * @param key the key
     * @param value the bytes
     * @return whether there is a record; if not, none is made
     */
    public final boolean prepend(byte[] key, byte[] value) {
        Objects.requireNonNull(key, "key");
        Objects.requireNonNull(value, "value");
        try (Handle.Use use = use()) {
            long[] message = new long[1];
            int status = Calls.stratakv_prepend(use.address(), key, key.length, value, value.length, message);
            return Outcome.isOk(status, message);
        }
    }

    /**
     * Sets when a record expires. Costs a write of it.
     *
     * @param key the key
     * @param expiry when, to the millisecond; {@link Instant#MAX} is never
     * @return whether there is a record
     */
    public final boolean expire(byte[] key, Instant expiry) {
        Objects.requireNonNull(key, "key");
        long at = Times.milliseconds(Objects.requireNonNull(expiry, "expiry"));
        try (Handle.Use use = use()) {
            long[] message = new long[1];
            return Outcome.isOk(Calls.stratakv_expire(use.address(), key, key.length, at, message), message);
        }
    }

    /**
     * How long a record lives on. Costs a read.
     *
     * @param key the key
     * @return how long; {@link #FOREVER} if it does not expire; empty if there is no record
     */
    public final Optional<Duration> timeToLive(byte[] key) {
        Objects.requireNonNull(key, "key");
        try (Handle.Use use = use()) {
            long[] ttlMs = new long[1];
            long[] message = new long[1];
            if (!Outcome.isOk(Calls.stratakv_ttl(use.address(), key, key.length, ttlMs, message), message)) {
                return Optional.empty();
            }
            return Optional.of(ttlMs[0] == -1 ? FOREVER : Duration.ofMillis(ttlMs[0]));
        }
    }

    /**
     * Removes the keys from one up to, not including, another. Not one step: others see it under way.
     *
     * @param from the first
     * @param to the one behind the last
     * @return how many there were
     */
    public final long deleteRange(byte[] from, byte[] to) {
        return deleteBetween(Objects.requireNonNull(from, "from"), Objects.requireNonNull(to, "to"));
    }

    /**
     * Removes the keys from one on. Not one step.
     *
     * @param from the first
     * @return how many there were
     */
    public final long deleteFrom(byte[] from) {
        return deleteBetween(Objects.requireNonNull(from, "from"), null);
    }

    /**
     * Removes the keys up to, not including, one. Not one step.
     *
     * @param to the one behind the last
     * @return how many there were
     */
    public final long deleteTo(byte[] to) {
        return deleteBetween(null, Objects.requireNonNull(to, "to"));
    }

    /**
     * Removes all keys. Not one step.
     *
     * @return how many there were
     */
    public final long clear() {
        return deleteBetween(null, null);
    }

    private long deleteBetween(byte[] from, byte[] to) {
        try (Handle.Use use = use()) {
            long[] count = new long[1];
            long[] message = new long[1];
            int status = Calls.stratakv_delete_range(
                    use.address(), from, from == null ? 0 : from.length, to, to == null ? 0 : to.length, count, message);
            Outcome.check(status, message);
            return count[0];
        }
    }

    /**
     * Removes the keys that begin with a prefix. Not one step.
     *
     * @param prefix how they begin
     * @return how many there were
     */
    public final long deletePrefix(byte[] prefix) {
        Objects.requireNonNull(prefix, "prefix");
        try (Handle.Use use = use()) {
            long[] count = new long[1];
            long[] message = new long[1];
            int status = Calls.stratakv_delete_prefix(use.address(), prefix, prefix.length, count, message);
            Outcome.check(status, message);
            return count[0];
        }
    }

    /**
     * How many records there are. Costs a look at each key in the index, and no read of a record.
     *
     * @return how many
     */
    public final long count() {
        try (Handle.Use use = use()) {
            long[] count = new long[1];
            long[] message = new long[1];
            Outcome.check(Calls.stratakv_count(use.address(), count, message), message);
            return count[0];
        }
    }

    /**
     * All records in the order of their keys, each as it is when it is read. To be closed.
     *
     * @return the scan
     * @throws StrataKvException of kind {@link StrataKvException.Kind#UNSUPPORTED}: the engine keeps no order here
     */
    public final Scan scan() {
        return scan(ScanOptions.all());
    }

    /**
     * Records in the order of their keys, each as it is when it is read. To be closed.
     *
     * @param options which, and how
     * @return the scan
     * @throws StrataKvException as {@link #scan()}; bounds and a prefix were given
     */
    public final Scan scan(ScanOptions options) {
        Objects.requireNonNull(options, "options");
        try (Handle.Use use = use()) {
            return Scan.begin(this, use, options, 0);
        }
    }

    static byte[] utf8(String text, String what) {
        return Objects.requireNonNull(text, what).getBytes(StandardCharsets.UTF_8);
    }
}
