package io.stratakv.streams;

import io.stratakv.StrataKvException;
import java.io.File;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.errors.TaskCorruptedException;
import org.apache.kafka.streams.errors.TaskMigratedException;
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
    /** The store whose committed records this one shows; null: it is a store of its own. */
    private PersistentStore viewed;

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
        StoreSettings settings = StoreSettings.of(configuration);
        warnOfLateCommits(settings);
        state = TaskState.open(directory, settings, this::exception);
        tracksPositions = KafkaInternals.tracksPositions(configuration);
        metrics = new StoreMetrics(context, name, state);
        // Before this Kafka does not close the store; it may restore already in there.
        context.register(root, KafkaInternals.restoreCallback(this::restoreAll));
        prepare();
        state.endOpening();
    }

    /** What is left to do when the state is open. */
    void prepare() {}

    /** Without that switch Kafka commits stores only when it closes them, if processing is exactly-once. */
    private void warnOfLateCommits(StoreSettings settings) {
        if (settings.isExactlyOnce() && !settings.isTransactional() && WARNED.compareAndSet(false, true)) {
            LOG.warn(
                    "Processing is exactly-once, but {} is not true: Kafka commits stores only when they are closed, "
                            + "and after a kill restores them from the beginning. Set it to true.",
                    StreamsConfig.TRANSACTIONAL_STATE_STORES_CONFIG);
        }
    }

    private void restoreAll(Iterable<ConsumerRecord<byte[], byte[]>> records) {
        state.restoring(() -> {
            records.forEach(this::restore);
            state.endLoad();
            // Not before: a query at this position must find them.
            for (ConsumerRecord<byte[], byte[]> record : records) {
                KafkaInternals.takePosition(record, tracksPositions, state.position());
            }
        });
    }

    /**
     * Damage is healed by the changelog, if the state belongs to a task; all else ends the thread.
     * A query fails with what Kafka tells its users to try again after.
     *
     * With exactly-once processing the thread's transaction must not be committed then: it has
     * outputs of this task without their offsets. Kafka aborts it if a task was taken away, and
     * begins all tasks of the thread anew; of a corrupted task it commits what other tasks did.
     */
    private RuntimeException exception(String what, StrataKvException error, TaskState.Damage damage) {
        String message = "Store " + name + " of task " + context.taskId() + ": " + what;
        if (damage == TaskState.Damage.IN_QUERY) {
            return new InvalidStateStoreException(message + ": " + error.getMessage() + ". The task restores it.", error);
        }
        boolean isOfTask = context.taskId() != null && context.taskId().partition() >= 0;
        if (damage == TaskState.Damage.NONE || !isOfTask) {
            return new ProcessorStateException(message + ": " + error.getMessage(), error);
        }
        boolean isInTransaction = damage == TaskState.Damage.WHILE_PROCESSING
                && StoreSettings.of(context.appConfigs()).isExactlyOnce();
        if (isInTransaction) {
            return new TaskMigratedException(message + ": it is restored from its changelog", error);
        }
        return new TaskCorruptedException(Set.of(context.taskId()), new ProcessorStateException(message, error));
    }

    /** The records that this store shows, if it is open. */
    final StateView state() {
        return viewed == null ? opened() : viewed.opened().committed();
    }

    /** Makes a new store of the same kind a view of this one's committed records. It refuses writes. */
    final <S extends PersistentStore> S view(S made) {
        PersistentStore view = made;
        view.viewed = this;
        return made;
    }

    /** The store whose records are shown: this one, or that of a view. */
    final PersistentStore source() {
        return viewed == null ? this : viewed;
    }

    private TaskState opened() {
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
        TaskState open = opened();
        open.committing(() -> {
            prepareCommit();
            open.commit(changelogOffsets);
        });
    }

    /** What a commit does before it writes. */
    void prepareCommit() {}

    @Override
    public Long committedOffset(TopicPartition partition) {
        return opened().committedOffset(partition);
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
        return source().state != null;
    }

    @Override
    public Position getPosition() {
        return state().position();
    }

    @Override
    public <R> QueryResult<R> query(Query<R> query, PositionBound bound, QueryConfig config) {
        return KafkaInternals.query(query, bound, config, this, positionAt(config.getIsolationLevel()), context);
    }

    /** How far the records that a query at this level sees have come. */
    final Position positionAt(IsolationLevel level) {
        return isCommittedOnly(level) ? opened().committed().position() : opened().position();
    }

    static boolean isCommittedOnly(IsolationLevel level) {
        return Objects.requireNonNull(level, "isolation level cannot be null") == IsolationLevel.READ_COMMITTED;
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
