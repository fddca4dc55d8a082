package io.stratakv;

import java.nio.file.Path;
import java.time.Instant;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.function.LongConsumer;

/**
 * A store. By itself it is its default collection: {@code store.put(key, value)}. Every method may be called by any number of threads at once, and throws {@link StrataKvException} where what it says cannot be
 * done, {@link IllegalStateException} after {@link #close}.
 */
public final class Store extends Collection {
    /** How often a transaction is tried, as in the library itself. */
    private static final int ATTEMPTS_MAX = 100;

    private final boolean hasOrders;

    private Store(Handle handle, long defaultCollection, boolean hasOrders) {
        super(handle, defaultCollection, null);
        this.hasOrders = hasOrders;
    }

    /**
     * Opens the store in a directory, and makes it if there is none.
     *
     * @param directory where it is
     * @return the store
     * @throws StrataKvException it is damaged, open elsewhere, there is no room, ...
     */
    public static Store open(Path directory) {
        return open(directory, Options.defaults());
    }

    /**
     * Opens the store in a directory.
     *
     * @param directory where it is
     * @param options how
     * @return the store
     * @throws StrataKvException an option is bad or does not fit the store; as {@link #open(Path)}
     */
    public static Store open(Path directory, Options options) {
        byte[] path = NativeText.of(directory, "directory");
        Objects.requireNonNull(options, "options");
        try (Options.Made made = options.make()) {
            long[] opened = new long[1];
            long[] message = new long[1];
            Outcome.check(Calls.stratakv_open(path, made.address(), opened, message), message);
            Handle handle = Handle.shared("store", null, opened[0], new Closing(made.called()));
            Store store = new Store(handle, Calls.stratakv_default(opened[0]), !made.called().isEmpty());
            handle.freeAfter(store);
            return store;
        }
    }

    /** Closes a store; until then its orders are reachable from here. */
    private record Closing(List<SortKeys> called) implements LongConsumer {
        @Override
        public void accept(long store) {
            long[] message = new long[1];
            Outcome.check(Calls.stratakv_close(store, message), message);
        }
    }

    /**
     * Waits for calls in other threads, finishes what is in flight, makes it durable, and lets the directory go. Everything that belongs to the store is closed with it.
     *
     * @throws StrataKvException what was in flight could not be finished; the store is closed nevertheless
     * @throws IllegalStateException it was called by a function that one of its calls is waiting for
     */
    @Override
    public void close() {
        handle().closeAndWait();
    }

    /** Whether calls may run code of the user's to sort keys. */
    boolean hasOrders() {
        return hasOrders;
    }

    /** The store itself, in a call. */
    private Handle.Use useStore() {
        return handle().use();
    }

    /**
     * The version of the native library.
     *
     * @return as in {@code 0.1.0}
     */
    public static String libraryVersion() {
        Library.bind();
        return Outcome.text(Calls.stratakv_version());
    }

    /**
     * Makes a new store from a backup.
     *
     * @param backup the backup's directory
     * @param directory where the store is to be
     * @return number of records
     * @throws StrataKvException the backup is damaged or incomplete, there is a store already, ...
     */
    public static long restore(Path backup, Path directory) {
        return restore(backup, directory, Options.defaults());
    }

    /**
     * Makes a new store from a backup, also with another engine or number of shards.
     *
     * @param backup the backup's directory
     * @param directory where the store is to be
     * @param options how to make it
     * @return number of records
     * @throws StrataKvException as {@link #restore(Path, Path)}
     */
    public static long restore(Path backup, Path directory, Options options) {
        byte[] from = NativeText.of(backup, "backup");
        byte[] to = NativeText.of(directory, "directory");
        Objects.requireNonNull(options, "options");
        try (Options.Made made = options.make()) {
            long[] records = new long[1];
            long[] message = new long[1];
            Outcome.check(Calls.stratakv_restore(from, to, made.address(), records, message), message);
            return records[0];
        }
    }

    /**
     * Reads and verifies a whole store that nobody has open.
     *
     * @param directory where it is
     * @return number of records
     * @throws StrataKvException of kind {@link StrataKvException.Kind#CORRUPT}, with a message that lists the damage, if it is not sound
     */
    public static long check(Path directory) {
        byte[] path = NativeText.of(directory, "directory");
        Library.bind();
        long[] records = new long[1];
        long[] message = new long[1];
        Outcome.check(Calls.stratakv_check(path, records, message), message);
        return records[0];
    }

    /**
     * Its engine.
     *
     * @return the engine
     */
    public Engine engine() {
        try (Handle.Use use = useStore()) {
            return Engine.valueOf(Outcome.text(Calls.stratakv_engine(use.address())).toUpperCase(Locale.ROOT));
        }
    }

    /**
     * Now, by the clock that decides what has expired.
     *
     * @return the instant, in milliseconds
     */
    public Instant now() {
        try (Handle.Use use = useStore()) {
            return Instant.ofEpochMilli(Calls.stratakv_wall_ms(use.address()));
        }
    }

    /** Makes every acknowledged write durable at power loss, whatever its level was. */
    public void sync() {
        try (Handle.Use use = useStore()) {
            long[] message = new long[1];
            Outcome.check(Calls.stratakv_sync(use.address(), message), message);
        }
    }

    /**
     * Counters and gauges, by their names.
     *
     * @return them, in the store's order; those over {@link Long#MAX_VALUE} are unsigned
     */
    public Map<String, Long> stats() {
        try (Handle.Use use = useStore()) {
            long[] json = new long[1];
            long[] message = new long[1];
            Outcome.check(Calls.stratakv_stats(use.address(), json, message), message);
            return Json.numbers(Outcome.takeText(json[0]));
        }
    }

    /**
     * Writes a backup of one moment while the store serves.
     *
     * @param directory a new or empty one
     * @return number of records
     */
    public long backup(Path directory) {
        byte[] path = NativeText.of(directory, "directory");
        try (Handle.Use use = useStore()) {
            long[] records = new long[1];
            long[] message = new long[1];
            Outcome.check(Calls.stratakv_backup(use.address(), path, records, message), message);
            return records[0];
        }
    }

    /**
     * The collection of a name, in the order of the keys' bytes or the one it was made in; made if there is none. Costs a read the first time, to make one two writes.
     *
     * @param name 1 to 255 bytes
     * @return the collection
     * @throws StrataKvException the name stands for a list; its order was not registered
     */
    public Collection collection(String name) {
        byte[] named = NativeText.of(name, "name");
        return opened((store, made, message) -> Calls.stratakv_collection_open(store, named, made, message)).orElseThrow();
    }

    /**
     * The same, made in an order if there is none.
     *
     * @param name 1 to 255 bytes
     * @param order a name that was given to {@link Options.Builder#order}, or of the library's own: {@code stratakv.numeric}, ...
     * @return the collection
     * @throws StrataKvException it is there in another order; there is no such order; as {@link #collection}
     */
    public Collection collectionInOrder(String name, String order) {
        byte[] named = NativeText.of(name, "name");
        byte[] ordered = NativeText.of(order, "order");
        return opened((store, made, message) ->
                Calls.stratakv_collection_in_order(store, named, ordered, made, message)).orElseThrow();
    }

    /**
     * The collection of a name, if there is one.
     *
     * @param name its name
     * @return the collection
     */
    public Optional<Collection> existingCollection(String name) {
        byte[] named = NativeText.of(name, "name");
        return opened((store, made, message) -> Calls.stratakv_collection_existing(store, named, made, message));
    }

    /** A call that makes something of the store's. */
    private interface Opening {
        int call(long store, long[] made, long[] message);
    }

    private Optional<Collection> opened(Opening opening) {
        return make("collection", opening, Calls::stratakv_collection_free, false).map(handle -> {
            Collection collection = new Collection(handle, handle.address(), this);
            handle.freeAfter(collection);
            return collection;
        });
    }

    private Optional<Handle> make(
            String what, Opening opening, LongConsumer free, boolean isExclusive) {
        try (Handle.Use use = useStore()) {
            long[] made = new long[1];
            long[] message = new long[1];
            if (!Outcome.isOk(opening.call(use.address(), made, message), message)) {
                return Optional.empty();
            }
            return Optional.of(isExclusive
                    ? Handle.exclusive(what, handle(), made[0], free)
                    : Handle.shared(what, handle(), made[0], free));
        }
    }

    /**
     * The list of a name; made if there is none. Costs as a collection.
     *
     * @param name 1 to 255 bytes
     * @return the list
     * @throws StrataKvException the name stands for a collection
     */
    public StoredList list(String name) {
        byte[] named = NativeText.of(name, "name");
        return listed((store, made, message) -> Calls.stratakv_list_open(store, named, made, message)).orElseThrow();
    }

    /**
     * The list of a name, if there is one.
     *
     * @param name its name
     * @return the list
     */
    public Optional<StoredList> existingList(String name) {
        byte[] named = NativeText.of(name, "name");
        return listed((store, made, message) -> Calls.stratakv_list_existing(store, named, made, message));
    }

    private Optional<StoredList> listed(Opening opening) {
        return make("list", opening, Calls::stratakv_list_free, false).map(handle -> {
            StoredList list = new StoredList(handle, this);
            handle.freeAfter(list);
            return list;
        });
    }

    /**
     * What a name stands for.
     *
     * @param name the name
     * @return its kind; empty if there is neither collection nor list
     */
    public Optional<CollectionKind> kindOf(String name) {
        byte[] named = NativeText.of(name, "name");
        try (Handle.Use use = useStore()) {
            int[] isList = new int[1];
            long[] message = new long[1];
            boolean isThere =
                    Outcome.isOk(Calls.stratakv_collection_is_list(use.address(), named, isList, message), message);
            CollectionKind kind = isList[0] == 0 ? CollectionKind.KEY_VALUE : CollectionKind.LIST;
            return isThere ? Optional.of(kind) : Optional.empty();
        }
    }

    /**
     * The names of all collections and lists.
     *
     * @return the names
     */
    public List<String> collectionNames() {
        try (Handle.Use use = useStore()) {
            long[] json = new long[1];
            long[] message = new long[1];
            Outcome.check(Calls.stratakv_collection_names(use.address(), json, message), message);
            return Json.strings(Outcome.takeText(json[0]));
        }
    }

    /**
     * Removes a collection or list with all that is in it. Costs four writes, and a delete of each key.
     *
     * @param name its name
     * @return whether there was one
     */
    public boolean dropCollection(String name) {
        byte[] named = NativeText.of(name, "name");
        try (Handle.Use use = useStore()) {
            long[] message = new long[1];
            return Outcome.isOk(Calls.stratakv_collection_drop(use.address(), named, message), message);
        }
    }

    /**
     * Sets when all of a collection or list expires: at that instant it is gone for everybody at once. Costs a batch of two records, however large it is.
     *
     * @param name its name
     * @param expiry when; {@link Instant#MAX} is never
     * @return whether there is one
     */
    public boolean expireCollection(String name, Instant expiry) {
        byte[] named = NativeText.of(name, "name");
        long at = Times.milliseconds(Objects.requireNonNull(expiry, "expiry"));
        try (Handle.Use use = useStore()) {
            long[] message = new long[1];
            return Outcome.isOk(
                    Calls.stratakv_collection_set_expiry(use.address(), named, at, message), message);
        }
    }

    /**
     * When a collection or list expires.
     *
     * @param name its name
     * @return when; {@link Instant#MAX} if never; empty if there is none
     */
    public Optional<Instant> collectionExpiry(String name) {
        byte[] named = NativeText.of(name, "name");
        try (Handle.Use use = useStore()) {
            long[] expiryMs = new long[1];
            long[] message = new long[1];
            int status = Calls.stratakv_collection_expiry(use.address(), named, expiryMs, message);
            return Outcome.isOk(status, message)
                    ? Times.expiry(expiryMs[0]).or(() -> Optional.of(Instant.MAX))
                    : Optional.empty();
        }
    }

    /**
     * All collections as they are now. What writers replace keeps its space until it is closed.
     *
     * @return the snapshot
     * @throws StrataKvException of kind {@link StrataKvException.Kind#UNSUPPORTED}: the engine has none
     */
    public Snapshot snapshot() {
        Handle handle = make("snapshot", Calls::stratakv_snapshot_new, Calls::stratakv_snapshot_free, true).orElseThrow();
        Snapshot snapshot = new Snapshot(handle, this);
        handle.freeAfter(snapshot);
        return snapshot;
    }

    /**
     * Makes all changes of a batch as one, crashes included, and empties it whatever comes of it. Costs three groups of writes at each shard, of which this waits for the first.
     *
     * @param batch the changes
     * @return the version of what was written; empty if a condition did not hold: then nothing was changed
     * @throws StrataKvException a key or value is bad; the batch has a collection of another store; ...
     */
    public OptionalLong write(WriteBatch batch) {
        Objects.requireNonNull(batch, "batch");
        try (Handle.Use own = batch.use(); Handle.Use use = useStore()) {
            long[] version = new long[1];
            long[] message = new long[1];
            int status = Calls.stratakv_write(use.address(), own.address(), version, message);
            return written(status, version, message);
        }
    }

    /**
     * Begins a transaction. It costs nothing, and holds no lock.
     *
     * @return the transaction; what was not committed was not done
     */
    public Transaction transaction() {
        Opening begin = Calls::stratakv_transaction_new;
        Handle handle = make("transaction", begin, Calls::stratakv_transaction_free, true).orElseThrow();
        Transaction transaction = new Transaction(handle, this);
        handle.freeAfter(transaction);
        return transaction;
    }

    /**
     * What runs in a transaction, and has a result.
     *
     * @param <T> the result
     * @param <E> what it may throw
     */
    @FunctionalInterface
    public interface Work<T, E extends Exception> {
        /**
         * Reads and writes.
         *
         * @param transaction to be used by this alone, and not to be committed
         * @return the result
         * @throws E to give it up
         */
        T run(Transaction transaction) throws E;
    }

    /**
     * What runs in a transaction.
     *
     * @param <E> what it may throw
     */
    @FunctionalInterface
    public interface Steps<E extends Exception> {
        /**
         * Reads and writes.
         *
         * @param transaction to be used by this alone, and not to be committed
         * @throws E to give it up
         */
        void run(Transaction transaction) throws E;
    }

    /**
     * Runs something in a transaction and commits it; again, if somebody else was faster, up to 100 times. So it may run several times, and should have no other effects.
     *
     * @param <E> what it may throw
     * @param steps what to do. What it throws comes out, and nothing was done; before the commit, what it reads of several keys may be of different moments
     * @throws E what it threw
     * @throws StrataKvException of kind {@link StrataKvException.Kind#BUSY} after the last attempt
     */
    public <E extends Exception> void transact(Steps<E> steps) throws E {
        Objects.requireNonNull(steps, "steps");
        transactResult((Work<Void, E>) transaction -> {
            steps.run(transaction);
            return null;
        });
    }

    /**
     * The same, with a result.
     *
     * @param <T> the result
     * @param <E> what it may throw
     * @param work what to do
     * @return what it returned the last time
     * @throws E what it threw
     * @throws StrataKvException as {@link #transact}
     */
    public <T, E extends Exception> T transactResult(Work<T, E> work) throws E {
        Objects.requireNonNull(work, "work");
        for (int attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
            // So that those who meet again and again come apart.
            for (int pause = 3; pause < attempt; pause++) {
                Thread.yield();
            }
            try (Transaction transaction = transaction()) {
                T result = work.run(transaction);
                if (transaction.commit().isPresent()) {
                    return result;
                }
            }
        }
        throw new StrataKvException(
                StrataKvException.Kind.BUSY,
                "the transaction met a conflict " + ATTEMPTS_MAX
                        + " times: others change what it reads without a pause. Try again, or let fewer write the same keys");
    }
}
