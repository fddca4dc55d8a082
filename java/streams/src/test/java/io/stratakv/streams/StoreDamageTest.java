package io.stratakv.streams;

import static io.stratakv.streams.Harness.bytes;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.TaskCorruptedException;
import org.apache.kafka.streams.errors.TaskMigratedException;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.WindowStore;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Bits of the store's files are turned: which exception a task gets, and which a query. */
class StoreDamageTest {
    private static final TopicPartition CHANGELOG = new TopicPartition("changelog", 0);
    private static final int RECORDS = 4000;
    private static final int VALUE_BYTES = 4000;
    /** A turned bit in each such piece: each value has one. */
    private static final int PIECE_BYTES = 2 << 10;
    /** Superblocks and manifests are at the beginning. */
    private static final long HEAD_BYTES = 1 << 20;

    @TempDir
    File folder;

    private final List<StateStore> open = new ArrayList<>();

    @AfterEach
    void closeAll() {
        open.forEach(StateStore::close);
    }

    private static Properties configuration() {
        Properties configuration = Harness.configuration(true);
        configuration.put("enable.transactional.statestores", "true");
        configuration.put(StrataKvStores.MEMORY_BYTES_CONFIG, "" + (32 << 20));
        return configuration;
    }

    private RecordBatchingStateRestoreCallback open(StateStore store) {
        RecordBatchingStateRestoreCallback callback = Harness.openToRestore(store, folder, configuration());
        open.add(store);
        return callback;
    }

    private KeyValueStore<Bytes, byte[]> store() {
        return StrataKvStores.keyValue("store").get();
    }

    private static List<ConsumerRecord<byte[], byte[]>> records() {
        Random random = new Random(93);
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int i = 0; i < RECORDS; i++) {
            byte[] value = new byte[VALUE_BYTES];
            random.nextBytes(value);
            records.add(Harness.changelogRecord(("key" + i).getBytes(), value, 0));
        }
        return records;
    }

    /** A store whose records are restored, committed, and on disk. */
    private KeyValueStore<Bytes, byte[]> restored() {
        KeyValueStore<Bytes, byte[]> store = store();
        open(store).restoreBatch(records());
        store.commit(Map.of(CHANGELOG, 7L));
        store.close();
        store = store();
        open(store).restoreBatch(List.of(Harness.changelogRecord("last".getBytes(), new byte[1], 0)));
        return store;
    }

    private static void readAll(KeyValueStore<Bytes, byte[]> store) {
        for (int i = 0; i < RECORDS; i++) {
            store.get(bytes("key" + i));
        }
    }

    private static void scanAll(KeyValueStore<Bytes, byte[]> store) {
        try (KeyValueIterator<Bytes, byte[]> all = store.all()) {
            while (all.hasNext()) {
                all.next();
            }
        }
    }

    private Path application() {
        return folder.toPath().resolve(Harness.APPLICATION);
    }

    private Path nameFile() {
        return application().resolve("0_9").resolve("store").resolve("stratakv-collection");
    }

    private Path damageNote() {
        return application().resolve("stratakv").resolve("damage-was-met");
    }

    private void damage() throws IOException {
        Random random = new Random(92);
        try (Stream<Path> files = Files.walk(application().resolve("stratakv"))) {
            for (Path file : files.filter(Files::isRegularFile).toList()) {
                try (RandomAccessFile bytes = new RandomAccessFile(file.toFile(), "rw")) {
                    for (long at = HEAD_BYTES; at < bytes.length(); at += PIECE_BYTES) {
                        long turned = at + random.nextInt(PIECE_BYTES);
                        if (turned < bytes.length()) {
                            bytes.seek(turned);
                            int read = bytes.read();
                            bytes.seek(turned);
                            bytes.write(read ^ 1 << random.nextInt(8));
                        }
                    }
                }
            }
        }
    }

    private static Throwable thrownElsewhere(Runnable query) {
        return CompletableFuture.runAsync(query).handle((none, error) -> error.getCause()).join();
    }

    @Test
    void aTaskThatWasRestoredAndOnlyReadsEndsItsTransaction() throws IOException {
        KeyValueStore<Bytes, byte[]> store = restored();
        damage();
        assertThrows(TaskMigratedException.class, () -> readAll(store));
        assertFalse(Files.exists(nameFile()), "the task begins empty");
        assertTrue(Files.exists(damageNote()));
    }

    @Test
    void aScanEndsTheTransactionToo() throws IOException {
        KeyValueStore<Bytes, byte[]> store = restored();
        damage();
        assertThrows(TaskMigratedException.class, () -> scanAll(store));
        assertFalse(Files.exists(nameFile()), "the task begins empty");
    }

    @Test
    void damageWhileOpeningIsOfThatTaskAlone() throws IOException {
        WindowStore<Bytes, byte[]> store = window();
        open(store);
        byte[] value = new byte[VALUE_BYTES];
        for (int i = 0; i < RECORDS; i++) {
            new Random(i).nextBytes(value);
            store.put(bytes("key" + i), value.clone(), i);
        }
        store.commit(Map.of(CHANGELOG, 7L));
        KeyValueStore<Bytes, byte[]> other = StrataKvStores.keyValue("other").get();
        open(other);
        store.close();
        other.close();
        open(other);
        damage();
        StateStore window = window();
        open.add(window);
        assertThrows(TaskCorruptedException.class, () -> open(window));
    }

    private static WindowStore<Bytes, byte[]> window() {
        return StrataKvStores.window("store", Duration.ofHours(1), Duration.ofMinutes(1), false).get();
    }

    @Test
    void aRestoreKeepsItsDamageForTheCommit() throws IOException {
        StateStore store = versioned();
        open(store).restoreBatch(records());
        store.commit(Map.of(CHANGELOG, 7L));
        store.close();
        StateStore again = versioned();
        RecordBatchingStateRestoreCallback restore = open(again);
        damage();
        restore.restoreBatch(records());
        assertEquals(0, again.approximateNumUncommittedBytes(), "records that are of no use");
        restore.restoreBatch(records());
        assertEquals(0, again.approximateNumUncommittedBytes(), "records that are of no use");
        assertThrows(TaskCorruptedException.class, () -> again.commit(Map.of(CHANGELOG, 9L)));
    }

    private static StateStore versioned() {
        return StrataKvStores.versionedKeyValue("store", Duration.ofHours(1)).get();
    }

    @Test
    void aQueryFailsAloneAndTheTasksNextCallHeals() throws IOException {
        KeyValueStore<Bytes, byte[]> store = restored();
        damage();
        assertInstanceOf(InvalidStateStoreException.class, thrownElsewhere(() -> readAll(store)));
        assertInstanceOf(InvalidStateStoreException.class, thrownElsewhere(() -> scanAll(store)));
        assertTrue(Files.exists(nameFile()), "the task still has its state");
        assertFalse(Files.exists(damageNote()));
        assertThrows(TaskMigratedException.class, () -> store.get(bytes("last")));
        assertFalse(Files.exists(nameFile()), "the task begins empty");
        assertTrue(Files.exists(damageNote()));
        store.close();
        KeyValueStore<Bytes, byte[]> healed = opened();
        assertNull(healed.get(bytes("key0")));
    }

    /** The disk may be full: then the note is refused, and the name must go nevertheless. */
    private void refuseDamageNote() throws IOException {
        Files.createDirectories(damageNote().resolve("in-the-way"));
    }

    @Test
    void damageThatCannotBeNotedStillTakesTheStateAway() throws IOException {
        KeyValueStore<Bytes, byte[]> store = restored();
        KeyValueStore<Bytes, byte[]> other = StrataKvStores.keyValue("other").get();
        open(other);
        damage();
        refuseDamageNote();
        assertThrows(TaskMigratedException.class, () -> readAll(store));
        assertFalse(Files.exists(nameFile()), "the task begins empty");
        store.close();
        KeyValueStore<Bytes, byte[]> healed = opened();
        assertNull(healed.committedOffset(CHANGELOG));
        assertNull(healed.get(bytes("key0")));
    }

    /** As Kafka does: what is damaged while it opens is opened again, soon without damage. */
    private KeyValueStore<Bytes, byte[]> opened() {
        for (int i = 0; ; i++) {
            try {
                KeyValueStore<Bytes, byte[]> store = store();
                open(store);
                return store;
            } catch (TaskCorruptedException error) {
                assertTrue(i < 2, "it never opens");
            }
        }
    }

    @Test
    void aTaskDoesNotForgetTheNameOfWhatCameAfterItsOwn() throws IOException {
        KeyValueStore<Bytes, byte[]> store = restored();
        Files.writeString(nameFile(), "another");
        damage();
        assertThrows(TaskMigratedException.class, () -> readAll(store));
        assertEquals("another", Files.readString(nameFile()));
    }

    @Test
    void onlyStoresThatWereGivenUpAreDeleted() throws IOException {
        Path id = Path.of("stratakv.damaged-3b241101-e2bb-4255-8caf-4136c566a962");
        Path givenUp = Files.createDirectories(application().resolve(id));
        Files.writeString(givenUp.resolve("store.toml"), "");
        Path noStore = Files.createDirectories(application().resolve("stratakv.damaged-" + "0".repeat(36)));
        Files.writeString(noStore.resolve("store.toml"), "");
        Path notes = Files.createDirectories(application().resolve("stratakv.damaged-notes"));
        Files.writeString(notes.resolve("store.toml"), "");
        Path empty = Files.createDirectories(
                application().resolve("stratakv.damaged-4b241101-e2bb-4255-8caf-4136c566a962"));
        open(store());
        assertFalse(Files.exists(givenUp));
        assertTrue(Files.exists(noStore) && Files.exists(notes) && Files.exists(empty), "they are somebody else's");
    }

    @Test
    void aStoreBehindALinkIsDeletedThere() throws IOException {
        Path disk = Files.createDirectories(folder.toPath().resolve("disk").resolve("one"));
        Files.createDirectories(application());
        Path link = Files.createSymbolicLink(application().resolve("stratakv"), disk);
        KeyValueStore<Bytes, byte[]> store = store();
        open(store);
        store.put(bytes("a"), new byte[1]);
        store.commit(Map.of(CHANGELOG, 7L));
        store.close();
        Files.createFile(damageNote());
        KeyValueStore<Bytes, byte[]> again = store();
        open(again);
        assertNull(again.get(bytes("a")));
        assertTrue(Files.isSymbolicLink(link));
        assertTrue(Files.exists(disk.resolve("store.toml")), "the new store is there too");
    }
}
