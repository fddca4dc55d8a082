package io.stratakv.streams;

import io.stratakv.StrataKvException;
import java.io.File;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.errors.TaskCorruptedException;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What all kinds of stores have in common: opening, restoring, commits with offsets, positions,
 * queries, metrics. Kafka's task calls it; records are {@link TaskState}'s.
 */
abstract class PersistentStore implements StateStore {
    private static final Logger LOG = LoggerFactory.getLogger(PersistentStore.class);
    private static final AtomicBoolean WARNED = new AtomicBoolean();

    private final String name;

    private StateStoreContext context;
    private StoreMetrics metrics;
    private boolean tracksPositions;
    private volatile TaskState state;

    PersistentStore(String name) {
        this.name = name;
    }

    /** Takes a record of the changelog. */
    abstract void restore(ConsumerRecord<byte[], byte[]> record);

    @Override
    public String name() {
        return name;
    }

    @Override
    public void init(StateStoreContext context, StateStore root) {
        this.context = context;
        Map<String, Object> configuration = context.appConfigs();
        File directory = new File(context.stateDir(), name);
        warnOfLateCommits(configuration);
        state = TaskState.open(directory, StoreSettings.of(configuration), this::exception);
        tracksPositions = KafkaInternals.tracksPositions(configuration);
        metrics = new StoreMetrics(context, name, state);
        context.register(root, KafkaInternals.restoreCallback(this::restoreAll));
    }

    /** Without that switch Kafka commits stores only when it closes them, if processing is exactly-once. */
    private void warnOfLateCommits(Map<String, Object> configuration) {
        Object transactional = configuration.get(StreamsConfig.TRANSACTIONAL_STATE_STORES_CONFIG);
        boolean commits = transactional != null && Boolean.parseBoolean(transactional.toString());
        if (StoreSettings.of(configuration).isExactlyOnce() && !commits && WARNED.compareAndSet(false, true)) {
            LOG.warn(
                    "Processing is exactly-once, but {} is not true: Kafka commits stores only when they are closed, "
                            + "and after a kill restores them from the beginning. Set it to true.",
                    StreamsConfig.TRANSACTIONAL_STATE_STORES_CONFIG);
        }
    }

    private void restoreAll(Iterable<ConsumerRecord<byte[], byte[]>> records) {
        for (ConsumerRecord<byte[], byte[]> record : records) {
            KafkaInternals.takePosition(record, tracksPositions, state.position());
            restore(record);
        }
    }

    /** Damage is healed by the changelog, if the state belongs to a task; all else ends the thread. */
    private RuntimeException exception(String what, StrataKvException error) {
        String message = "Store " + name + " of task " + context.taskId() + ": " + what;
        boolean isOfTask = context.taskId() != null && context.taskId().partition() >= 0;
        if (error.kind() == StrataKvException.Kind.CORRUPT && isOfTask) {
            return new TaskCorruptedException(Set.of(context.taskId()), new ProcessorStateException(message, error));
        }
        return new ProcessorStateException(message + ": " + error.getMessage(), error);
    }

    /** The records, if the store is open. */
    final TaskState state() {
        TaskState open = state;
        if (open == null) {
            throw new InvalidStateStoreException("Store " + name + " is currently closed");
        }
        return open;
    }

    final StateStoreContext context() {
        return context;
    }

    /** Notes that the task has put what it made of its current input record. */
    final void updatePosition() {
        context.recordMetadata().ifPresent(input ->
                state().position().withComponent(input.topic(), input.partition(), input.offset()));
    }

    /** Counts a record that came after its time. */
    final void refuseExpired() {
        metrics.refuseExpired();
    }

    @Override
    public void commit(Map<TopicPartition, Long> changelogOffsets) {
        state().commit(changelogOffsets);
    }

    @Override
    public Long committedOffset(TopicPartition partition) {
        return state().committedOffset(partition);
    }

    @Override
    @Deprecated
    @SuppressWarnings("deprecation")
    public boolean managesOffsets() {
        return true;
    }

    @Override
    public long approximateNumUncommittedBytes() {
        TaskState open = state;
        return open == null ? 0 : open.bufferedBytes();
    }

    @Override
    public boolean persistent() {
        return true;
    }

    @Override
    public boolean isOpen() {
        return state != null;
    }

    @Override
    public Position getPosition() {
        return state().position();
    }

    @Override
    public <R> QueryResult<R> query(Query<R> query, PositionBound bound, QueryConfig config) {
        return KafkaInternals.query(query, bound, config, this, state().position(), context);
    }

    @Override
    public void close() {
        TaskState open = state;
        if (open != null) {
            state = null;
            metrics.close();
            open.close();
        }
    }
}
