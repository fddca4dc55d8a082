package io.stratakv.streams;

import io.stratakv.Collection;
import io.stratakv.Record;
import io.stratakv.Scan;
import io.stratakv.ScanOptions;
import io.stratakv.Snapshot;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;

/** A snapshot that several readers use, one at a time. It is closed after the last of them. */
final class SharedSnapshot {
    private final Snapshot snapshot;
    private int users = 1;

    SharedSnapshot(Snapshot snapshot) {
        this.snapshot = snapshot;
    }

    synchronized Optional<Record> get(Collection collection, byte[] key) {
        return snapshot.get(collection, key);
    }

    /** A scan, and what its user closes after it. Closing that twice releases the snapshot once. */
    record Use(Scan scan, AutoCloseable end) {}

    synchronized Use scan(Collection collection, ScanOptions options) {
        Scan scan = snapshot.scan(collection, options);
        users++;
        AtomicBoolean isEnded = new AtomicBoolean();
        return new Use(scan, () -> {
            if (isEnded.compareAndSet(false, true)) {
                release();
            }
        });
    }

    /** Ends the use of who made it; of a scan {@link Use#end} does it. */
    synchronized void release() {
        users--;
        if (users == 0) {
            snapshot.close();
        }
    }
}
