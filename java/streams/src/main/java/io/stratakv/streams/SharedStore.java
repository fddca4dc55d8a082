package io.stratakv.streams;

import io.stratakv.Collection;
import io.stratakv.Entry;
import io.stratakv.Scan;
import io.stratakv.Store;
import io.stratakv.StrataKvException;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The one StrataKV store of an application's state directory, shared by the stores of all its
 * tasks. It is opened for the first task and closed after the last.
 *
 * <p>A task's store is a collection under a random name. A file in the directory that Kafka gives
 * the task's store holds that name. Kafka wipes a task by deleting its directory: then the file is
 * gone, the collection is nobody's, and it is dropped.
 *
 * <p>A store that has met damage cannot clear its files for ever: what its compactions would read
 * may be damaged. So the next opening begins with an empty one. If room ends before, the store is
 * given up: it goes on under another name until its last user leaves, and tasks open a new one.
 */
final class SharedStore {
    /** The store's directory, beside those of the tasks. Kafka leaves names of this form alone. */
    static final String DIRECTORY = "stratakv";
    private static final String NAME_FILE = "stratakv-collection";
    /** There while the store has met damage. */
    private static final String DAMAGE_FILE = "damage-was-met";
    /** Behind the name of a directory whose store was given up; a UUID follows. */
    private static final String GIVEN_UP = ".damaged-";
    /** Each directory of a store has this file. */
    private static final String STORE_FILE = "store.toml";
    private static final String REGION_FILE = "pmem/region-000";

    private static final Pattern UUID_FORM = Pattern.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}");

    private static final Logger LOG = LoggerFactory.getLogger(SharedStore.class);
    private static final Map<Path, SharedStore> OPEN = new HashMap<>();
    /** Directories of stores that were given up and have users still. */
    private static final Set<Path> LEFT = new HashSet<>();

    private final Path application;
    private final StoreSettings settings;
    private final Store store;
    /** Of the region, which may have been made with other settings. */
    private final long regionBytes;
    private final AtomicLong bufferedBytes = new AtomicLong();
    private final CachedStats stats;
    private int users;
    /** Where the files lie since the store was given up; null: it was not. */
    private volatile Path givenUp;

    private SharedStore(Path application, StoreSettings settings, Store store) {
        this.application = application;
        this.settings = settings;
        this.store = store;
        this.regionBytes = regionBytes(application.resolve(DIRECTORY), settings);
        this.stats = new CachedStats(store);
    }

    /** The store of an application's directory, opened if it is not. */
    static SharedStore acquire(File applicationDirectory, StoreSettings settings) {
        Path application = applicationDirectory.toPath().toAbsolutePath().normalize();
        synchronized (OPEN) {
            SharedStore shared = OPEN.get(application);
            if (shared == null) {
                deleteLeft(application);
                shared = opened(application, settings);
                OPEN.put(application, shared);
            }
            shared.users++;
            return shared;
        }
    }

    /** Opens the store, and looks through its catalogue. If that is damaged, it is replaced. */
    private static SharedStore opened(Path application, StoreSettings settings) {
        Path directory = application.resolve(DIRECTORY);
        SharedStore shared = new SharedStore(application, settings, open(directory, settings));
        try {
            shared.dropOrphans();
            return shared;
        } catch (StrataKvException error) {
            closeDamaged(shared.store);
            if (error.kind() != StrataKvException.Kind.CORRUPT) {
                throw new ProcessorStateException("cannot read the StrataKV store in " + directory, error);
            }
            LOG.warn("The catalogue of the StrataKV store in {} is damaged.", directory, error);
        }
        return new SharedStore(application, settings, replace(directory, settings));
    }

    /** What the end of a damaged store says must not keep another one from coming in its place. */
    private static void closeDamaged(Store store) {
        try {
            store.close();
        } catch (StrataKvException error) {
            LOG.warn("A damaged store could not be closed in order.", error);
        }
    }

    /** Ends one use; the last one closes the store. */
    void release() {
        synchronized (OPEN) {
            users--;
            if (users > 0) {
                return;
            }
            if (givenUp == null) {
                OPEN.remove(application);
                store.close();
            } else {
                closeGivenUp();
            }
        }
    }

    private void closeGivenUp() {
        try {
            store.close();
            delete(givenUp);
        } catch (StrataKvException | IOException error) {
            LOG.warn("Cannot remove {}; the next start will.", givenUp, error);
        }
        LEFT.remove(givenUp);
    }

    /**
     * Notes that damage was met, and that a task's store is to begin empty. One of the two must be
     * on disk before Kafka opens the task again: else it would meet the same damage for ever.
     *
     * @param collection the one that the task's store has; null: whichever it names
     */
    void noteDamage(File storeDirectory, String collection) {
        // As giving up: behind that the note would lie in the sound store that comes after.
        synchronized (OPEN) {
            IOException failure = forgetName(storeDirectory.toPath().resolve(NAME_FILE), collection);
            try {
                if (givenUp == null) {
                    Files.write(application.resolve(DIRECTORY).resolve(DAMAGE_FILE), new byte[0]);
                }
                failure = null;
            } catch (IOException error) {
                LOG.warn("Cannot note in {} that damage was met.", application, error);
            }
            if (failure != null) {
                throw new ProcessorStateException(
                        "damage was met, and cannot be noted: delete " + storeDirectory + " and restart", failure);
            }
        }
    }

    /** Deletes the name of a collection, if it is that one's. Null, or why that failed. */
    private static IOException forgetName(Path file, String collection) {
        try {
            if (collection == null || nameIn(file).equals(Optional.of(collection))) {
                Files.deleteIfExists(file);
            }
            return null;
        } catch (IOException error) {
            LOG.warn("Cannot delete {}.", file, error);
            return error;
        }
    }

    boolean isGivenUp() {
        return givenUp != null;
    }

    /**
     * Whether the store is given up, which this does if damage was met and its disk has room: then
     * it is damage that keeps it from clearing its files. Who uses it must open another one.
     */
    boolean isGivenUpForDamage() {
        synchronized (OPEN) {
            Path directory = application.resolve(DIRECTORY);
            try {
                if (givenUp == null && Files.exists(directory.resolve(DAMAGE_FILE)) && hasRoom(directory)) {
                    giveUp("as it is damaged it cannot make room");
                }
            } catch (IOException error) {
                LOG.warn("Cannot give up the damaged store in {}.", directory, error);
            }
            return givenUp != null;
        }
    }

    /** Goes on under another name until the last user leaves. The next task opens a new store. */
    private void giveUp(String why) throws IOException {
        synchronized (OPEN) {
            if (givenUp != null) {
                return;
            }
            Path directory = application.resolve(DIRECTORY);
            // It may be a link to another disk, which stays.
            Path real = directory.toRealPath();
            Path left = real.resolveSibling(real.getFileName() + GIVEN_UP + UUID.randomUUID());
            Files.move(real, left);
            if (Files.isSymbolicLink(directory)) {
                Files.createDirectory(real);
            }
            LOG.warn(
                    "The StrataKV store in {} is given up: {}. Every task restores its state from its changelog.",
                    directory, why);
            LEFT.add(left);
            OPEN.remove(application);
            givenUp = left;
        }
    }

    private boolean hasRoom(Path directory) throws IOException {
        return Files.getFileStore(directory).getUsableSpace() > settings.regionBytes();
    }

    /** Removes stores that were given up, and one that has met damage in its last life. */
    private static void deleteLeft(Path application) {
        Path directory = application.resolve(DIRECTORY);
        try {
            for (Path left : leftOf(application, directory)) {
                delete(left);
            }
            if (Files.exists(directory.resolve(DAMAGE_FILE))) {
                LOG.warn(
                        "The StrataKV store in {} has met damage. It is deleted, and every task restores its state "
                                + "from its changelog.",
                        directory);
                delete(directory);
            }
        } catch (IOException error) {
            throw new ProcessorStateException(
                    "cannot remove what a damaged StrataKV store has left in " + application + ": delete " + directory
                            + ", and all beside it with its name and " + GIVEN_UP,
                    error);
        }
    }

    /** Directories of stores that were given up and have no user. Others' directories are let be. */
    private static List<Path> leftOf(Path application, Path directory) throws IOException {
        if (!Files.exists(application)) {
            return List.of();
        }
        Path real = Files.exists(directory) ? directory.toRealPath() : application.toRealPath().resolve(DIRECTORY);
        String begin = real.getFileName() + GIVEN_UP;
        try (Stream<Path> files = Files.list(real.getParent())) {
            return files.filter(file -> isLeft(file, begin) && !LEFT.contains(file)).toList();
        }
    }

    private static boolean isLeft(Path file, String begin) {
        String name = file.getFileName().toString();
        return name.startsWith(begin)
                && UUID_FORM.matcher(name.substring(begin.length())).matches()
                && Files.isDirectory(file, LinkOption.NOFOLLOW_LINKS)
                && Files.isRegularFile(file.resolve(STORE_FILE));
    }

    private static Store open(Path directory, StoreSettings settings) {
        try {
            create(directory);
            return openOrMake(directory, settings);
        } catch (StrataKvException error) {
            if (error.kind() != StrataKvException.Kind.CORRUPT) {
                throw new ProcessorStateException("cannot open the StrataKV store in " + directory, error);
            }
            LOG.warn(
                    "The StrataKV store in {} is damaged. It is deleted, and every task restores its state from its "
                            + "changelog.",
                    directory, error);
        } catch (IOException error) {
            throw new ProcessorStateException("cannot make the directory " + directory, error);
        }
        return replace(directory, settings);
    }

    private static Store replace(Path directory, StoreSettings settings) {
        try {
            delete(directory);
            create(directory);
            return openOrMake(directory, settings);
        } catch (IOException | StrataKvException error) {
            throw new ProcessorStateException(
                    "cannot replace the damaged StrataKV store in " + directory + ": delete that directory", error);
        }
    }

    /** A store that is there keeps the region it was made with. */
    private static Store openOrMake(Path directory, StoreSettings settings) {
        try {
            return Store.open(directory, settings.optionsOfExisting(regionBytes(directory, settings)));
        } catch (StrataKvException error) {
            if (error.kind() != StrataKvException.Kind.NOT_FOUND) {
                throw error;
            }
            return Store.open(directory, settings.options());
        }
    }

    /** Bytes of the region that is there, or would be made. */
    private static long regionBytes(Path directory, StoreSettings settings) {
        File region = directory.resolve(REGION_FILE).toFile();
        return region.isFile() ? region.length() : settings.regionBytes();
    }

    /** Whether a task must write its buffer before its commit, by its own bytes and all tasks'. */
    boolean isFull(long ownBytes, long allBytes) {
        return settings.isFull(ownBytes, allBytes, regionBytes);
    }

    /** Makes a directory. A link to one is as good, which the JDK knows from 20 on only. */
    private static void create(Path directory) throws IOException {
        if (!Files.isDirectory(directory)) {
            Files.createDirectories(directory);
        }
    }

    /** Deletes a store's directory; behind a link only what is in it. */
    static void delete(Path directory) throws IOException {
        Path real = directory.toRealPath();
        Path last = real.resolve(STORE_FILE);
        try (Stream<Path> files = Files.walk(real)) {
            for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                if (!file.equals(real) && !file.equals(last)) {
                    Files.delete(file);
                }
            }
        }
        // By it the next start knows what this one has not finished.
        Files.deleteIfExists(last);
        if (!Files.isSymbolicLink(directory)) {
            Files.delete(real);
        }
    }

    Store store() {
        return store;
    }

    StoreSettings settings() {
        return settings;
    }

    CachedStats stats() {
        return stats;
    }

    /** Bytes of uncommitted writes of all tasks. */
    AtomicLong bufferedBytes() {
        return bufferedBytes;
    }

    /** A task's collection, and the name under which it may be dropped. */
    record Named(String name, Collection collection) {}

    /** The collection of a task's store, made if Kafka has wiped it or never had it. */
    Named collectionOf(File storeDirectory) {
        Path file = storeDirectory.toPath().resolve(NAME_FILE);
        try {
            Optional<String> name = nameIn(file);
            Optional<Collection> found = name.flatMap(store::existingCollection);
            return found.isPresent() ? new Named(name.orElseThrow(), found.get()) : make(storeDirectory, file);
        } catch (IOException error) {
            throw new ProcessorStateException("cannot read or write " + file, error);
        }
    }

    /** Drops a task's collection and makes an empty one in its place. */
    Named replace(File storeDirectory, Named old) {
        Path file = storeDirectory.toPath().resolve(NAME_FILE);
        try {
            old.collection().close();
            Files.deleteIfExists(file);
            dropSound(old.name());
            return make(storeDirectory, file);
        } catch (IOException error) {
            throw new ProcessorStateException("cannot write " + file, error);
        }
    }

    /** If damage keeps the store from making collections, it is given up: it would again. */
    private Named make(File storeDirectory, Path file) throws IOException {
        try {
            return made(storeDirectory, file);
        } catch (StrataKvException error) {
            if (error.kind() == StrataKvException.Kind.CORRUPT) {
                giveUp("as it is damaged it cannot make a collection");
            }
            throw error;
        }
    }

    private Named made(File storeDirectory, Path file) throws IOException {
        String name = UUID.randomUUID().toString();
        String path = application.relativize(file.toAbsolutePath().normalize()).toString();
        dropNamed(path);
        // The catalogue first: a crash in between leaves a name without a file, which is dropped.
        store.put(name, path);
        Collection collection = store.collection(name);
        Files.createDirectories(storeDirectory.toPath());
        Path written = file.resolveSibling(NAME_FILE + ".new");
        Files.writeString(written, name);
        Files.move(written, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
        return new Named(name, collection);
    }

    private static Optional<String> nameIn(Path file) throws IOException {
        return Files.isRegularFile(file) ? Optional.of(Files.readString(file).trim()) : Optional.empty();
    }

    private Map<String, String> catalogue() {
        Map<String, String> catalogue = new HashMap<>();
        try (Scan scan = store.scan()) {
            for (Entry entry : scan) {
                catalogue.put(entry.keyText(), entry.record().text());
            }
        }
        return catalogue;
    }

    /** Drops what an earlier life of the same task's store has left. */
    private void dropNamed(String path) {
        catalogue().forEach((name, owner) -> {
            if (owner.equals(path)) {
                dropSound(name);
            }
        });
    }

    /** Drops collections whose task Kafka has wiped. */
    private void dropOrphans() {
        Set<String> orphans = new HashSet<>();
        catalogue().forEach((name, owner) -> {
            try {
                if (!nameIn(application.resolve(owner)).equals(Optional.of(name))) {
                    orphans.add(name);
                }
            } catch (IOException error) {
                LOG.warn("Cannot read {}: its state is kept.", owner, error);
            }
        });
        orphans.forEach(this::drop);
        if (!orphans.isEmpty()) {
            LOG.info("Dropped the state of {} stores whose tasks were wiped.", orphans.size());
        }
    }

    /** Drops what no file names any more. If it cannot be read, the next start does it. */
    private void dropSound(String name) {
        try {
            drop(name);
        } catch (StrataKvException error) {
            if (error.kind() != StrataKvException.Kind.CORRUPT) {
                throw error;
            }
            LOG.warn("The collection {} is damaged: the next start drops it.", name, error);
        }
    }

    private void drop(String name) {
        store.dropCollection(name);
        store.delete(name);
    }
}
