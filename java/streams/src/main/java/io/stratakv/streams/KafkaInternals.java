package io.stratakv.streams;

import java.util.Collection;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.streams.StreamsConfig.InternalConfig;
import org.apache.kafka.streams.processor.StateRestoreCallback;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.ChangelogRecordDeserializationHelper;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;
import org.apache.kafka.streams.processor.internals.metrics.TaskMetrics;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.internals.StoreQueryUtils;

/**
 * Calls of Kafka's internal packages, which Kafka may change in any release: restoring with
 * timestamps and headers, queries, the sensor of dropped records. Its own stores use the same.
 * Metrics, segments and suppliers use some more where they need them.
 */
final class KafkaInternals {
    private KafkaInternals() {}

    /** Whether changelog records carry the position of the input. */
    static boolean tracksPositions(Map<String, Object> configuration) {
        return InternalConfig.getBoolean(configuration, InternalConfig.IQ_CONSISTENCY_OFFSET_VECTOR_ENABLED, false);
    }

    static StateRestoreCallback restoreCallback(Consumer<Collection<ConsumerRecord<byte[], byte[]>>> restore) {
        return (RecordBatchingStateRestoreCallback) restore::accept;
    }

    static void takePosition(ConsumerRecord<byte[], byte[]> record, boolean tracksPositions, Position position) {
        ChangelogRecordDeserializationHelper.applyChecksAndUpdatePosition(record, tracksPositions, position);
    }

    static <R> QueryResult<R> query(
            Query<R> query, PositionBound bound, QueryConfig config, StateStore store, Position position,
            StateStoreContext context) {
        return StoreQueryUtils.handleBasicQueries(query, bound, config, store, position, context);
    }

    /** Whether a store has come as far as a query demands. */
    static boolean isUpTo(PositionBound bound, Position position, StateStoreContext context) {
        return StoreQueryUtils.isPermitted(position, bound, context.taskId().partition());
    }

    static Sensor droppedRecords(StateStoreContext context) {
        return TaskMetrics.droppedRecordsSensor(
                Thread.currentThread().getName(), context.taskId().toString(), metrics(context));
    }

    static StreamsMetricsImpl metrics(StateStoreContext context) {
        return (StreamsMetricsImpl) context.metrics();
    }
}
