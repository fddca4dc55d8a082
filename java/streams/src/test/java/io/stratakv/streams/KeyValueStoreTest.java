package io.stratakv.streams;

import static io.stratakv.streams.Harness.bytes;
import static io.stratakv.streams.Harness.listed;
import static io.stratakv.streams.Harness.text;
import static io.stratakv.streams.Harness.value;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.stratakv.Durability;
import io.stratakv.Options;
import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.VersionedBytesStore;
import org.apache.kafka.streams.state.WindowStore;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class KeyValueStoreTest {
    private static final TopicPartition CHANGELOG = new TopicPartition("changelog", 0);

    @TempDir
    File folder;

    private KeyValueStore<Bytes, byte[]> open() {
        return Harness.open(StrataKvStores.keyValue("store").get(), folder);
    }

    private static void put(KeyValueStore<Bytes, byte[]> store, String... keys) {
        for (String key : keys) {
            store.put(bytes(key), value(key.toUpperCase()));
        }
    }

    @Test
    void recordsAreReadBeforeAndAfterTheirCommit() {
        KeyValueStore<Bytes, byte[]> store = open();
        for (int round = 0; round < 2; round++) {
            put(store, "a", "b", "ab", "");
            assertEquals("A", text(store.get(bytes("a"))));
            assertEquals("", text(store.get(bytes(""))), "a key of no bytes");
            assertNull(store.get(bytes("c")));
            assertEquals("B", text(store.putIfAbsent(bytes("b"), value("other"))));
            assertNull(store.putIfAbsent(bytes("c"), value("C")));
            assertEquals("C", text(store.delete(bytes("c"))));
            assertNull(store.get(bytes("c")));
            store.putAll(List.of(KeyValue.pair(bytes("d"), value("D")), KeyValue.pair(bytes("a"), value("A"))));
            assertEquals(List.of("=", "a=A", "ab=AB", "b=B", "d=D"), listed(store.all()));
            assertEquals(List.of("d=D", "b=B", "ab=AB", "a=A", "="), listed(store.reverseAll()));
            assertEquals(List.of("a=A", "ab=AB", "b=B"), listed(store.range(bytes("a"), bytes("b"))));
            assertEquals(List.of("b=B", "ab=AB", "a=A"), listed(store.reverseRange(bytes("a"), bytes("b"))));
            assertEquals(List.of("b=B", "d=D"), listed(store.range(bytes("b"), null)));
            assertEquals(List.of("=", "a=A"), listed(store.range(null, bytes("a"))));
            assertEquals(List.of(), listed(store.range(bytes("b"), bytes("a"))));
            assertEquals(List.of("a=A", "ab=AB"), listed(store.prefixScan("a", new StringSerializer())));
            assertEquals(5, store.approximateNumEntries());
            store.commit(Map.of(CHANGELOG, 7L + round));
            assertEquals(0, store.approximateNumUncommittedBytes());
        }
        store.close();
        store.close();
        assertFalse(store.isOpen());
        assertThrows(InvalidStateStoreException.class, () -> store.get(bytes("a")));
    }

    @Test
    void whatWasNotCommittedIsGoneAndTheOffsetSaysSo() {
        KeyValueStore<Bytes, byte[]> store = open();
        assertNull(store.committedOffset(CHANGELOG));
        put(store, "a", "b");
        store.commit(Map.of(CHANGELOG, 2L));
        put(store, "c");
        store.delete(bytes("a"));
        store.close();
        KeyValueStore<Bytes, byte[]> again = open();
        assertEquals(2L, again.committedOffset(CHANGELOG));
        assertEquals(List.of("a=A", "b=B"), listed(again.all()));
        again.commit(Map.of());
        assertNull(again.committedOffset(CHANGELOG), "an empty commit forgets the offsets");
        again.close();
        KeyValueStore<Bytes, byte[]> third = open();
        assertNull(third.committedOffset(CHANGELOG));
        assertEquals(2, third.approximateNumEntries());
        third.close();
    }

    @Test
    void aWipedTaskBeginsEmptyAndItsRecordsAreDropped() throws IOException {
        KeyValueStore<Bytes, byte[]> store = open();
        KeyValueStore<Bytes, byte[]> other =
                Harness.open(StrataKvStores.keyValue("store").get(), folder, 1, Harness.configuration(false));
        put(store, "a");
        store.commit(Map.of(CHANGELOG, 1L));
        put(other, "kept");
        other.commit(Map.of(CHANGELOG, 1L));
        store.close();
        // As Kafka wipes a task, while other tasks of the process go on.
        SharedStore.delete(Path.of(folder.getPath(), Harness.APPLICATION, "0_0"));
        store = open();
        assertNull(store.committedOffset(CHANGELOG));
        assertEquals(List.of(), listed(store.all()));
        store.close();
        other.close();
        Files.delete(Path.of(folder.getPath(), Harness.APPLICATION, "0_0", "store", "stratakv-collection"));
        other = Harness.open(StrataKvStores.keyValue("store").get(), folder, 1, Harness.configuration(false));
        assertEquals(List.of("kept=KEPT"), listed(other.all()));
        SharedStore shared = SharedStore.acquire(
                new File(folder, Harness.APPLICATION), new StoreSettings(32 << 20, 1 << 20, Durability.PROCESS_CRASH, false, false));
        assertEquals(1, shared.store().collectionNames().size(), "the wiped task's collection is dropped");
        shared.release();
        other.close();
    }

    /** It was opened again as if every commit had to survive a power cut, and was a tenth as fast. */
    @Test
    void aStoreThatIsThereIsOpenedWithTheDurabilityThatIsConfigured() {
        for (Durability durability : new Durability[] {Durability.PROCESS_CRASH, Durability.POWER_LOSS}) {
            StoreSettings settings = new StoreSettings(32 << 20, 1 << 20, durability, false, false);
            String expected = "durability=" + durability.name().toLowerCase(Locale.ROOT);
            for (Options options : List.of(settings.options(), settings.optionsOfExisting(32 << 20))) {
                assertTrue(List.of(options.toString().split(", ")).contains(expected), options.toString());
            }
        }
    }

    @Test
    void aDamagedStoreIsReplacedAndTasksBeginEmpty() throws IOException {
        KeyValueStore<Bytes, byte[]> store = open();
        put(store, "a");
        store.commit(Map.of(CHANGELOG, 1L));
        store.close();
        Path shared = Path.of(folder.getPath(), Harness.APPLICATION, SharedStore.DIRECTORY);
        try (Stream<Path> files = Files.walk(shared)) {
            for (Path file : files.filter(Files::isRegularFile).toList()) {
                damage(file);
            }
        }
        store = open();
        assertNull(store.committedOffset(CHANGELOG), "Kafka restores the state");
        assertEquals(List.of(), listed(store.all()));
        put(store, "b");
        store.commit(Map.of(CHANGELOG, 1L));
        store.close();
        store = open();
        assertEquals(List.of("b=B"), listed(store.all()));
        store.close();
    }

    /** Turns bits at the beginning of a file that holds records. */
    private static void damage(Path file) throws IOException {
        try (RandomAccessFile bytes = new RandomAccessFile(file.toFile(), "rw")) {
            if (bytes.length() < 1 << 20) {
                return;
            }
            byte[] head = new byte[64 << 10];
            bytes.readFully(head);
            for (int i = 0; i < head.length; i++) {
                head[i] ^= 0x55;
            }
            bytes.seek(0);
            bytes.write(head);
        }
    }

    @Test
    void theMemoryOfAStoreMayChange() {
        Properties configuration = Harness.configuration(false);
        configuration.put(StrataKvStores.MEMORY_BYTES_CONFIG, 128 << 20);
        KeyValueStore<Bytes, byte[]> store =
                Harness.open(StrataKvStores.keyValue("store").get(), folder, 0, configuration);
        put(store, "a");
        store.commit(Map.of(CHANGELOG, 1L));
        store.close();
        configuration.put(StrataKvStores.MEMORY_BYTES_CONFIG, "67108864");
        store = Harness.open(StrataKvStores.keyValue("store").get(), folder, 0, configuration);
        assertEquals(List.of("a=A"), listed(store.all()));
        store.close();
        configuration.put(StrataKvStores.MEMORY_BYTES_CONFIG, "64 MB");
        Exception refused = assertThrows(
                ConfigException.class,
                () -> Harness.open(StrataKvStores.keyValue("store").get(), folder, 0, configuration));
        assertTrue(refused.getMessage().contains("number of bytes"), refused.getMessage());
    }

    @Test
    void aFullBufferIsWrittenBeforeItsCommit() {
        Properties small = Harness.configuration(false);
        small.put(StrataKvStores.BUFFER_BYTES_CONFIG, "1048576");
        KeyValueStore<Bytes, byte[]> store = Harness.open(StrataKvStores.keyValue("store").get(), folder, 0, small);
        byte[] value = new byte[10_000];
        for (int i = 0; i < 1000; i++) {
            store.put(bytes("key" + i), value);
            assertTrue(store.approximateNumUncommittedBytes() <= 1 << 20, "the cap on the buffer holds");
        }
        assertEquals(1000, store.approximateNumEntries());
        store.close();
        store = Harness.open(StrataKvStores.keyValue("store").get(), folder, 0, small);
        assertTrue(store.approximateNumEntries() >= 800, "at-least-once: what was written early is kept");
        store.close();
    }

    @Test
    void exactlyOnceForgetsAStateThatWasWrittenInPart() {
        Properties small = Harness.configuration(true);
        small.put(StrataKvStores.BUFFER_BYTES_CONFIG, "1048576");
        KeyValueStore<Bytes, byte[]> store = Harness.open(StrataKvStores.keyValue("store").get(), folder, 0, small);
        put(store, "committed");
        store.commit(Map.of(CHANGELOG, 1L));
        byte[] value = new byte[10_000];
        for (int i = 0; i < 200; i++) {
            store.put(bytes("key" + i), value);
        }
        store.close();
        store = Harness.open(StrataKvStores.keyValue("store").get(), folder, 0, small);
        assertNull(store.committedOffset(CHANGELOG), "Kafka restores it from the beginning");
        assertEquals(0, store.approximateNumEntries());
        for (int i = 0; i < 200; i++) {
            store.put(bytes("key" + i), value);
        }
        store.commit(Map.of(CHANGELOG, 201L));
        store.close();
        store = Harness.open(StrataKvStores.keyValue("store").get(), folder, 0, small);
        assertEquals(201L, store.committedOffset(CHANGELOG), "once committed, it is whole again");
        assertEquals(200, store.approximateNumEntries());
        store.close();
    }

    @Test
    void queriesOfOtherThreadsSeeOneMoment() {
        KeyValueStore<Bytes, byte[]> store = open();
        put(store, "a", "b");
        store.commit(Map.of(CHANGELOG, 1L));
        put(store, "c");
        KeyValueIterator<Bytes, byte[]> query = CompletableFuture.supplyAsync(store::all).join();
        put(store, "d");
        store.delete(bytes("a"));
        store.commit(Map.of(CHANGELOG, 2L));
        store.put(bytes("b"), value("later"));
        assertEquals(List.of("a=A", "b=B", "c=C"), listed(query));
        assertEquals(List.of("b=later", "c=C", "d=D"), listed(store.all()));
        store.close();
    }

    @Test
    void theChangelogRestoresEachKindOfStore() {
        KeyValueStore<Bytes, byte[]> store = StrataKvStores.keyValue("store").get();
        restore(store, List.of(Harness.changelogRecord(value("a"), value("A"), 1), Harness.changelogRecord(value("a"), null, 2),
                Harness.changelogRecord(value("b"), value("B"), 3)));
        assertEquals(List.of("b=B"), listed(store.all()));
        store.close();

        WindowStore<Bytes, byte[]> windows =
                StrataKvStores.window("windows", Duration.ofMinutes(10), Duration.ofMinutes(1), true).get();
        byte[] first = ByteBuffer.allocate(13).put(value("k")).putLong(60_000).putInt(1).array();
        byte[] second = ByteBuffer.allocate(13).put(value("k")).putLong(60_000).putInt(2).array();
        byte[] expired = ByteBuffer.allocate(13).put(value("k")).putLong(1).putInt(2).array();
        byte[] late = ByteBuffer.allocate(13).put(value("k")).putLong(601_000).putInt(2).array();
        restore(windows, List.of(Harness.changelogRecord(expired, value("0"), 1), Harness.changelogRecord(first, value("1"), 1),
                Harness.changelogRecord(second, value("2"), 1), Harness.changelogRecord(late, value("3"), 1)));
        assertEquals(List.of("60000=1", "60000=2", "601000=3"), listed(windows.fetch(bytes("k"), 0, 700_000)));
        windows.close();

        WindowStore<Bytes, byte[]> single =
                StrataKvStores.window("single", Duration.ofMinutes(10), Duration.ofMinutes(1), false).get();
        byte[] only = ByteBuffer.allocate(13).put(value("k")).putLong(601_000).putInt(0).array();
        restore(single, List.of(Harness.changelogRecord(only, value("only"), 1)));
        assertEquals("only", text(single.fetch(bytes("k"), 601_000)));
        single.close();

        SessionStore<Bytes, byte[]> sessions = StrataKvStores.session("sessions", Duration.ofMinutes(10)).get();
        byte[] session = ByteBuffer.allocate(17).put(value("k")).putLong(70_000).putLong(60_000).array();
        restore(sessions, List.of(Harness.changelogRecord(session, value("s"), 1)));
        assertEquals("s", text(sessions.fetchSession(bytes("k"), 60_000, 70_000)));
        sessions.close();

        VersionedBytesStore versions =
                (VersionedBytesStore) StrataKvStores.versionedKeyValue("versions", Duration.ofMinutes(10)).get();
        restore(versions, List.of(Harness.changelogRecord(value("k"), value("old"), 100),
                Harness.changelogRecord(value("k"), value("new"), 200)));
        assertEquals("old", text(versions.get(bytes("k"), 150)).substring(8));
        versions.close();
    }

    /** They are written at once, in the changelog's order, and need no commit to be seen. */
    @Test
    void ofWhatIsRestoredAtOnceTheLastChangeOfAKeyCounts() {
        KeyValueStore<Bytes, byte[]> store = StrataKvStores.keyValue("restored").get();
        Properties configuration = Harness.configuration(false);
        configuration.put(StrataKvStores.MEMORY_BYTES_CONFIG, "" + (32 << 20));
        RecordBatchingStateRestoreCallback callback = Harness.openToRestore(store, folder, configuration);
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        // More than one batch may have: short records take much more room in the region.
        for (int round = 0; round < 2; round++) {
            for (int i = 0; i < 160_000; i++) {
                boolean isDeleted = round == 1 && i % 5 == 0;
                records.add(Harness.changelogRecord(value("k" + i), isDeleted ? null : value("v" + round), round));
            }
        }
        callback.restoreBatch(records);
        assertEquals(0, store.approximateNumUncommittedBytes(), "nothing is kept on the heap");
        for (int i = 0; i < 160_000; i++) {
            assertEquals(i % 5 == 0 ? null : "v1", text(store.get(bytes("k" + i))), "k" + i);
        }
        callback.restoreBatch(List.of(Harness.changelogRecord(value("k1"), value("few"), 3)));
        assertEquals("few", text(store.get(bytes("k1"))), "what is not worth a batch is seen as well");
        store.commit(Map.of(CHANGELOG, 60_000L));
        store.close();
        store = StrataKvStores.keyValue("restored").get();
        Harness.openToRestore(store, folder, Harness.configuration(false));
        assertEquals(60_000L, store.committedOffset(CHANGELOG));
        assertEquals(128_000, listed(store.all()).size());
        assertEquals("few", text(store.get(bytes("k1"))));
        store.close();
    }

    /** Its region is as large as it was made, whatever is configured later. */
    @Test
    void aCommitFitsIntoTheRegionThatIsThere() {
        Properties configuration = Harness.configuration(false);
        configuration.put(StrataKvStores.MEMORY_BYTES_CONFIG, "" + (32 << 20));
        Harness.open(StrataKvStores.keyValue("store").get(), folder, 0, configuration).close();
        configuration.put(StrataKvStores.MEMORY_BYTES_CONFIG, "" + (512 << 20));
        KeyValueStore<Bytes, byte[]> store =
                Harness.open(StrataKvStores.keyValue("store").get(), folder, 0, configuration);
        byte[] value = new byte[1000];
        for (int i = 0; i < 30_000; i++) {
            store.put(bytes("k" + i), value);
        }
        store.commit(Map.of(CHANGELOG, 1L));
        assertEquals(30_000, listed(store.all()).size());
        store.close();
    }

    private void restore(StateStore store, List<ConsumerRecord<byte[], byte[]>> records) {
        Harness.openToRestore(store, folder, Harness.configuration(false)).restoreBatch(records);
    }

    @Test
    void aLateWindowIsNotKept() {
        WindowStore<Bytes, byte[]> store = Harness.open(
                StrataKvStores.window("store", Duration.ofMinutes(10), Duration.ofMinutes(1), false).get(), folder);
        store.put(bytes("a"), value("A"), 6_000_000);
        long before = store.approximateNumUncommittedBytes();
        store.put(bytes("a"), value("late"), 60_000);
        assertEquals(before, store.approximateNumUncommittedBytes());
        store.close();
    }

    @Test
    void openIteratorsEndWithTheirStore() {
        KeyValueStore<Bytes, byte[]> store = open();
        // It keeps the shared store open.
        KeyValueStore<Bytes, byte[]> other =
                Harness.open(StrataKvStores.keyValue("store").get(), folder, 1, Harness.configuration(false));
        put(store, "a");
        KeyValueIterator<Bytes, byte[]> left = store.all();
        store.close();
        assertThrows(IllegalStateException.class, left::hasNext);
        left.close();
        other.close();
        open().close();
    }
}
