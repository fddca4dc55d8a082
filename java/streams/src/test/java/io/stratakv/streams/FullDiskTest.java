package io.stratakv.streams;

import static io.stratakv.streams.Harness.bytes;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.stratakv.streams.cluster.SmallDisk;
import java.io.File;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.state.KeyValueStore;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** One store on a disk that is full for a while. A store takes 128 MiB of its disk when it is made. */
class FullDiskTest {
    private static final TopicPartition CHANGELOG = new TopicPartition("changelog", 0);
    private static final int COMMIT_RECORDS = 100;
    private static final int VALUE_BYTES = 10_000;
    private static final long DISK_BYTES = 224L << 20;

    @TempDir
    File folder;

    private static KeyValueStore<Bytes, byte[]> open(SmallDisk disk) {
        Properties configuration = Harness.configuration(true);
        configuration.put(StrataKvStores.MEMORY_BYTES_CONFIG, "" + (32 << 20));
        return Harness.open(StrataKvStores.keyValue("store").get(), disk.folder(), 0, configuration);
    }

    /** Writes and commits a piece; each record has a value of its own. */
    private static void put(KeyValueStore<Bytes, byte[]> store, long piece) {
        byte[] value = new byte[VALUE_BYTES];
        for (int i = 0; i < COMMIT_RECORDS; i++) {
            new Random(piece * COMMIT_RECORDS + i).nextBytes(value);
            store.put(bytes("key" + (piece * COMMIT_RECORDS + i)), value.clone());
        }
        store.commit(Map.of(CHANGELOG, piece));
    }

    @Test
    void aCommitOnAFullDiskIsRefusedAndTheStateGoesOnWhenThereIsRoom() throws Exception {
        try (SmallDisk disk = SmallDisk.mount(folder, DISK_BYTES)) {
            KeyValueStore<Bytes, byte[]> store = open(disk);
            put(store, 0);
            disk.fill(1 << 20);
            long piece = 1;
            ProcessorStateException refused = null;
            for (; refused == null && piece * COMMIT_RECORDS * VALUE_BYTES < DISK_BYTES; piece++) {
                try {
                    put(store, piece);
                } catch (ProcessorStateException error) {
                    refused = error;
                }
            }
            assertTrue(refused != null, "the disk was never full");
            assertTrue(refused.getMessage().contains("full"), refused.getMessage());
            long last = piece - 2;
            assertEquals(last, store.committedOffset(CHANGELOG), "the last commit that was taken");
            assertEquals(VALUE_BYTES, store.get(bytes("key0")).length, "reads go on");
            store.close();
            disk.empty();
            store = open(disk);
            assertEquals(last, store.committedOffset(CHANGELOG));
            assertEquals((last + 1) * COMMIT_RECORDS, store.approximateNumEntries(), "nothing of the refused commit");
            put(store, last + 1);
            assertEquals((last + 2) * COMMIT_RECORDS, store.approximateNumEntries());
            store.close();
        }
    }
}
