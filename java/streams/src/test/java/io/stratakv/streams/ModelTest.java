package io.stratakv.streams;

import static io.stratakv.streams.Harness.bytes;
import static io.stratakv.streams.Harness.listed;
import static io.stratakv.streams.Harness.text;
import static io.stratakv.streams.Harness.value;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.VersionedBytesStore;
import org.apache.kafka.streams.state.WindowStore;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Random operations on each kind of store, beside one of Kafka's own; the answers are the same. */
class ModelTest {
    private static final int STEPS = 800;
    private static final TopicPartition CHANGELOG = new TopicPartition("changelog", 0);

    @TempDir
    File folder;

    /** Keys of which some begin others, with bytes at both ends of their range. */
    private static Bytes key(Random random) {
        byte[] alphabet = {0, 1, 'a', (byte) 0xFF};
        byte[] key = new byte[1 + random.nextInt(3)];
        for (int i = 0; i < key.length; i++) {
            key[i] = alphabet[random.nextInt(alphabet.length)];
        }
        return Bytes.wrap(key);
    }

    private static byte[] newValue(Random random) {
        return random.nextInt(4) == 0 ? null : value("v" + random.nextInt(1000));
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4})
    void keysAndValues(long seed) {
        Random random = new Random(seed);
        KeyValueStore<Bytes, byte[]> model = Harness.open(Stores.inMemoryKeyValueStore("model").get(), folder, 7, Harness.configuration(false));
        KeyValueStore<Bytes, byte[]> store = Harness.open(StrataKvStores.keyValue("store").get(), folder);
        for (int step = 0; step < STEPS; step++) {
            String what = "seed " + seed + ", step " + step;
            Bytes one = key(random);
            Bytes other = key(random);
            byte[] value = newValue(random);
            switch (random.nextInt(12)) {
                case 0, 1, 2 -> both(store, model, each -> {
                    each.put(one, value);
                    return null;
                }, what);
                case 3 -> both(store, model, each -> text(each.putIfAbsent(one, value("first"))), what);
                case 4 -> both(store, model, each -> text(each.delete(one)), what);
                case 5 -> both(store, model, each -> text(each.get(one)), what);
                case 6 -> both(store, model, each -> listed(each.range(one, other)), what);
                case 7 -> both(store, model, each -> listed(each.reverseRange(one, other)), what);
                case 8 -> both(store, model, each -> listed(each.all()), what);
                case 9 -> both(store, model, each -> listed(each.prefixScan("a", new StringSerializer())), what);
                case 10 -> both(store, model, KeyValueStore::approximateNumEntries, what);
                default -> {
                    store.commit(Map.of(CHANGELOG, (long) step));
                    if (random.nextInt(8) == 0) {
                        store.close();
                        store = Harness.open(StrataKvStores.keyValue("store").get(), folder);
                    }
                }
            }
        }
        store.close();
        model.close();
    }

    private static <S> void both(S store, S model, Function<S, Object> ask, String what) {
        Object expected = ask.apply(model);
        assertEquals(expected, ask.apply(store), what);
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4})
    void windows(long seed) {
        Random random = new Random(seed);
        Duration retention = Duration.ofMinutes(10);
        Duration size = Duration.ofMinutes(1);
        boolean duplicates = seed % 2 == 0;
        WindowStore<Bytes, byte[]> model = Harness.open(Stores.inMemoryWindowStore("model", retention, size, duplicates).get(), folder, 7, Harness.configuration(false));
        WindowStore<Bytes, byte[]> store = Harness.open(StrataKvStores.window("store", retention, size, duplicates).get(), folder);
        long now = 0;
        for (int step = 0; step < STEPS; step++) {
            String what = "seed " + seed + ", step " + step;
            now += random.nextInt(20_000);
            long early = Math.max(0, now - random.nextInt(900_000));
            long late = early + random.nextInt(700_000);
            Bytes one = key(random);
            Bytes other = key(random);
            byte[] value = newValue(random);
            switch (random.nextInt(10)) {
                case 0, 1, 2, 3 -> both(store, model, each -> {
                    each.put(one, value, early);
                    return null;
                }, what);
                case 4 -> both(store, model, each -> duplicates ? null : text(each.fetch(one, early)), what);
                case 5 -> both(store, model, each -> listed(each.fetch(one, early, late)), what);
                case 6 -> both(store, model, each -> listed(each.backwardFetch(one, early, late)), what);
                case 7 -> both(store, model, each -> sorted(listed(each.fetch(one, other, early, late))), what);
                case 8 -> both(store, model, each -> sorted(listed(each.fetchAll(early, late))), what);
                default -> {
                    both(store, model, each -> sorted(listed(each.backwardAll())), what);
                    store.commit(Map.of(CHANGELOG, (long) step));
                    if (!duplicates && random.nextInt(4) == 0) {
                        store.close();
                        store = Harness.open(StrataKvStores.window("store", retention, size, false).get(), folder);
                    }
                }
            }
        }
        store.close();
        model.close();
    }

    /** Kafka's stores themselves differ in the order of windows of several keys. */
    private static List<String> sorted(List<String> listed) {
        return listed.stream().sorted().collect(Collectors.toList());
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4})
    void sessions(long seed) {
        Random random = new Random(seed);
        Duration retention = Duration.ofMinutes(10);
        SessionStore<Bytes, byte[]> model = Harness.open(Stores.inMemorySessionStore("model", retention).get(), folder, 7, Harness.configuration(false));
        SessionStore<Bytes, byte[]> store = Harness.open(StrataKvStores.session("store", retention).get(), folder);
        long now = 0;
        for (int step = 0; step < STEPS; step++) {
            String what = "seed " + seed + ", step " + step;
            now += random.nextInt(20_000);
            long start = Math.max(0, now - random.nextInt(60) * 15_000L);
            long end = start + random.nextInt(20) * 15_000L;
            long latest = now;
            Bytes one = key(random);
            Bytes other = key(random);
            byte[] value = newValue(random);
            switch (random.nextInt(10)) {
                case 0, 1, 2, 3 -> both(store, model, each -> {
                    each.put(new Windowed<>(one, new SessionWindow(start, end)), value);
                    return null;
                }, what);
                case 4 -> both(store, model, each -> {
                    each.remove(new Windowed<>(one, new SessionWindow(start, end)));
                    return text(each.fetchSession(one, start, end));
                }, what);
                case 5 -> both(store, model, each -> sorted(listed(each.fetch(one))), what);
                case 6 -> both(store, model, each -> sorted(listed(each.findSessions(one, start, end))), what);
                case 7 -> both(store, model, each -> sorted(listed(each.findSessions(one, other, start, end))), what);
                case 8 -> both(store, model, each -> sorted(listed(each.findSessions(start, latest))), what);
                default -> {
                    // Kafka's store fails if the first key is behind the last.
                    Bytes low = one.compareTo(other) < 0 ? one : other;
                    Bytes high = low == one ? other : one;
                    both(store, model, each -> sorted(listed(each.backwardFetch(low, high))), what);
                    store.commit(Map.of(CHANGELOG, (long) step));
                    if (random.nextInt(4) == 0) {
                        store.close();
                        store = Harness.open(StrataKvStores.session("store", retention).get(), folder);
                    }
                }
            }
        }
        store.close();
        model.close();
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4})
    void versions(long seed) {
        Random random = new Random(seed);
        Duration history = Duration.ofMinutes(10);
        VersionedBytesStore model = (VersionedBytesStore) Harness.open(
                Stores.persistentVersionedKeyValueStore("model", history).get(), folder, 7, Harness.configuration(false));
        VersionedBytesStore store = (VersionedBytesStore) Harness.open(
                StrataKvStores.versionedKeyValue("store", history).get(), folder, 0, Harness.configuration(false));
        long now = 1_000_000;
        for (int step = 0; step < STEPS; step++) {
            String what = "seed " + seed + ", step " + step;
            now += random.nextInt(20_000);
            long at = now - random.nextInt(random.nextBoolean() ? 1000 : 900_000);
            Bytes one = bytes("k" + random.nextInt(6));
            byte[] value = newValue(random);
            switch (random.nextInt(8)) {
                case 0, 1, 2, 3 -> both(store, model, each -> each.put(one, value, at), what);
                case 4 -> both(store, model, each -> versioned(each.delete(one, at)), what);
                case 5 -> both(store, model, each -> versioned(each.get(one)), what);
                case 6 -> both(store, model, each -> versioned(each.get(one, at)), what);
                default -> store.commit(Map.of(CHANGELOG, (long) step));
            }
        }
        store.close();
        model.close();
    }

    /** A value with the timestamp before it. */
    private static String versioned(byte[] record) {
        return record == null ? null : java.nio.ByteBuffer.wrap(record).getLong() + " "
                + text(java.util.Arrays.copyOfRange(record, 8, record.length));
    }
}
