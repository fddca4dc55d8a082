package io.stratakv.streams;

import io.stratakv.Collection;
import io.stratakv.Record;
import io.stratakv.Scan;
import io.stratakv.ScanOptions;
import io.stratakv.Snapshot;
import java.util.Optional;

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

    /** A scan, whose user releases the snapshot after it. */
    synchronized Scan scan(Collection collection, ScanOptions options) {
        Scan scan = snapshot.scan(collection, options);
        users++;
        return scan;
    }

    synchronized void release() {
        users--;
        if (users == 0) {
            snapshot.close();
        }
    }
}
