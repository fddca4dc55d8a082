package io.stratakv.streams;

import java.util.Map;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.Cache;
import org.rocksdb.LRUCache;
import org.rocksdb.Options;
import org.rocksdb.WriteBufferManager;

/**
 * Bounds RocksDB's memory in a process, as Kafka's documentation advises: one cache for all stores,
 * which pays for memtables, indexes and filters too.
 */
public final class BoundedRocksDb implements RocksDBConfigSetter {
    /** Cap of all stores of the process, in bytes; a system property, as stores come and go. */
    public static final String MEMORY_BYTES = "bench.memory.bytes";

    private static final double HIGH_PRIORITY_SHARE = 0.1;
    private static Cache cache;
    private static WriteBufferManager memtables;

    private static synchronized void share() {
        if (cache == null) {
            long bytes = Long.getLong(MEMORY_BYTES, 98L << 20);
            cache = new LRUCache(bytes, -1, false, HIGH_PRIORITY_SHARE);
            memtables = new WriteBufferManager(bytes / 2, cache);
        }
    }

    @Override
    public void setConfig(String store, Options options, Map<String, Object> configuration) {
        share();
        BlockBasedTableConfig tables = (BlockBasedTableConfig) options.tableFormatConfig();
        tables.setBlockCache(cache);
        tables.setCacheIndexAndFilterBlocks(true);
        tables.setCacheIndexAndFilterBlocksWithHighPriority(true);
        tables.setPinTopLevelIndexAndFilter(true);
        options.setWriteBufferManager(memtables);
        options.setTableFormatConfig(tables);
    }

    @Override
    public void close(String store, Options options) {
        // Cache and memtables are those of the process.
    }
}
