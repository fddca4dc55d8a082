package io.stratakv.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.stratakv.Collection;
import io.stratakv.ScanOptions;
import io.stratakv.Store;
import java.io.File;
import java.nio.file.Path;
import java.util.Collections;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class MergedScanTest {
    private static final int RACES = 500;

    @TempDir
    File folder;

    private Store store() {
        Map<String, Object> configuration = Map.of("application.id", "a", "bootstrap.servers", "none:9092");
        return Store.open(Path.of(folder.getPath(), "s"), StoreSettings.of(configuration).options());
    }

    @Test
    void twoClosersReleaseTheSnapshotOnce() throws Exception {
        try (Store store = store(); Collection collection = store.collection("c")) {
            AtomicInteger released = new AtomicInteger();
            MergedScan[] scan = new MergedScan[1];
            CyclicBarrier begin = new CyclicBarrier(2, () -> scan[0] = new MergedScan(
                    Collections.emptyIterator(), collection.scan(ScanOptions.all()), released::incrementAndGet, true,
                    error -> error, ended -> {}));
            CyclicBarrier end = new CyclicBarrier(2);
            Thread other = new Thread(() -> close(scan, begin, end));
            other.start();
            close(scan, begin, end);
            other.join();
            assertEquals(RACES, released.get(), "snapshots released");
        }
    }

    private static void close(MergedScan[] scan, CyclicBarrier begin, CyclicBarrier end) {
        try {
            for (int i = 0; i < RACES; i++) {
                begin.await();
                scan[0].close();
                end.await();
            }
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    @Test
    void aUserOfASharedSnapshotEndsItsUseOnce() throws Exception {
        try (Store store = store(); Collection collection = store.collection("c")) {
            SharedSnapshot snapshot = new SharedSnapshot(store.snapshot());
            SharedSnapshot.Use use = snapshot.scan(collection, ScanOptions.all());
            use.scan().close();
            use.end().close();
            use.end().close();
            assertEquals(Optional.empty(), snapshot.get(collection, new byte[] {1}), "its maker reads on");
            snapshot.release();
        }
    }
}
