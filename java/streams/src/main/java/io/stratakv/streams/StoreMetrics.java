package io.stratakv.streams;

import java.util.Map;
import java.util.function.LongSupplier;
import org.apache.kafka.common.metrics.Gauge;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.Sensor.RecordingLevel;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;

/**
 * A store's gauges in Kafka's registry, in the group {@code stream-state-metrics}. Kafka removes
 * them when it closes the store. Those of the shared store have the same value at each task.
 */
final class StoreMetrics implements AutoCloseable {
    static final String SCOPE = "stratakv";

    /** Counters of the native store that are shown, by the names they have there. */
    private static final Map<String, String> SHARED = Map.of(
            "stratakv-memory-bytes", "memory_bytes",
            "stratakv-memory-cap-bytes", "memory_cap_bytes",
            "stratakv-table-bytes", "table_bytes",
            "stratakv-value-bytes", "value_bytes",
            "stratakv-compacted-bytes-total", "compacted_bytes",
            "stratakv-stalled-ticks-total", "stalled_ticks",
            "stratakv-corrupt-records-total", "corrupt_records");

    private final StateStoreContext context;
    private final String store;
    private final Sensor droppedRecords;

    StoreMetrics(StateStoreContext context, String store, TaskState state) {
        this.context = context;
        this.store = store;
        this.droppedRecords = KafkaInternals.droppedRecords(context);
        CommitCounts counts = state.counts();
        gauge("uncommitted-bytes", "Bytes of writes since the last commit", state::bufferedBytes);
        gauge("uncommitted-bytes-all", "The same of all stores of the application", state.shared().bufferedBytes()::get);
        gauge("commits-total", "Batches written", counts::commits);
        gauge("committed-bytes-total", "Bytes in those batches", counts::bytes);
        gauge("commit-time-ns-total", "Time that those batches took", counts::nanos);
        gauge("early-writes-total", "Batches written before their commit, as memory ended", counts::spills);
        SHARED.forEach((name, counter) ->
                gauge(name, "Of the application's StrataKV store", () -> state.shared().stats().get(counter)));
    }

    private void gauge(String name, String description, LongSupplier value) {
        StreamsMetricsImpl metrics = KafkaInternals.metrics(context);
        Gauge<Long> gauge = (config, now) -> value.getAsLong();
        metrics.addStoreLevelMutableMetric(
                context.taskId().toString(), SCOPE, store, name, description, RecordingLevel.INFO, gauge);
    }

    void refuseExpired() {
        droppedRecords.record();
    }

    @Override
    public void close() {
        KafkaInternals.metrics(context).removeAllStoreLevelSensorsAndMetrics(context.taskId().toString(), store);
    }
}
