// Everything that stratakv/db.h declares, done once and looked at; run with a directory that does
// not exist yet and the name of an engine.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "stratakv/db.h"

using namespace stratakv;

static int failures;

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #what);                              \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)

#define WORKS(call)                                                                                                       \
    do {                                                                                                               \
        Status came_to = (call);                                                                                       \
        if (!came_to.ok()) {                                                                                           \
            std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, came_to.ToString().c_str());            \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)

static Options options_of(const std::string &engine) {
    Options options;
    options.Set("engine", engine)->Set("memory_bytes", "64MiB");
    if (engine != "hash") {
        options.Set("shards", "2");
    }
    if (engine != "slab") {
        options.Set("region_bytes", "64MiB");
    }
    return options;
}

static std::string get(DB *db, const Slice &key, const ReadOptions &options = ReadOptions()) {
    std::string value = "untouched";
    Status status = db->Get(options, key, &value);
    return status.ok() ? value : status.ToString();
}

static void slices() {
    CHECK(Slice("abc") == Slice(std::string("abc")) && Slice("abc") != Slice("abd") && Slice("ab") < Slice("abc"));
    CHECK(Slice("\xff").compare("a") > 0 && Slice("a").compare("a") == 0 && Slice().empty());
    CHECK(Slice("abc").starts_with("ab") && !Slice("a").starts_with("ab") && Slice("abc").ends_with("bc"));
    CHECK(!Slice("c").ends_with("bc") && Slice("abx").difference_offset("aby") == 2);
    Slice slice("a\0b", 3);
    CHECK(slice.ToString(true) == "610062" && slice.size() == 3 && slice[2] == 'b');
    slice.remove_prefix(1);
    CHECK(slice == Slice("\0b", 2));
    slice.remove_suffix(9);
    CHECK(slice.empty());
    CHECK(std::string(slice.begin(), slice.end()).empty() && Slice(static_cast<const char *>(nullptr)).empty());
}

static void statuses() {
    CHECK(Status::OK().ok() && Status().ToString() == "OK" && Status().getState() == nullptr);
    CHECK(Status::NotFound("gone").IsNotFound() && Status::NotFound("gone").ToString() == "NotFound: gone");
    CHECK(Status::NoSpace().IsIOError() && Status::NoSpace().IsNoSpace() && !Status::IOError().IsNoSpace());
    struct {
        stratakv_status from;
        bool (Status::*is)() const;
    } all[] = {
        {STRATAKV_OK, &Status::ok},
        {STRATAKV_ABSENT, &Status::IsNotFound},
        {STRATAKV_UNMET, &Status::IsBusy},
        {STRATAKV_ERROR_USAGE, &Status::IsInvalidArgument},
        {STRATAKV_ERROR_NOT_FOUND, &Status::IsInvalidArgument},
        {STRATAKV_ERROR_CORRUPT, &Status::IsCorruption},
        {STRATAKV_ERROR_LOCKED, &Status::IsIOError},
        {STRATAKV_ERROR_FULL, &Status::IsNoSpace},
        {STRATAKV_ERROR_UNSUPPORTED, &Status::IsNotSupported},
        {STRATAKV_ERROR_IO, &Status::IsIOError},
        {STRATAKV_ERROR_CLOSED, &Status::IsShutdownInProgress},
        {STRATAKV_ERROR_UNKNOWN, &Status::IsIOError},
        {STRATAKV_ERROR_BUSY, &Status::IsBusy},
        {STRATAKV_ERROR_INTERNAL, &Status::IsAborted},
    };
    for (auto &one : all) {
        Status made = Status::FromC(one.from, nullptr);
        CHECK((made.*one.is)());
        CHECK(made.ok() == (one.from == STRATAKV_OK));
    }
}

static void opening(const std::string &path, const std::string &engine) {
    DB *db = reinterpret_cast<DB *>(1);
    Options options = options_of(engine);
    Status absent = DB::Open(options, path, &db);
    CHECK(absent.IsInvalidArgument() && absent.ToString().find("there is no store") != std::string::npos);
    CHECK(db == nullptr && DB::OpenForReadOnly(options, path, &db).IsInvalidArgument());

    Options wrong = options;
    wrong.create_if_missing = true;
    Status refused = DB::Open(*wrong.Set("colour", "blue"), path, &db);
    CHECK(refused.IsInvalidArgument() && refused.ToString().find("colour") != std::string::npos && db == nullptr);

    options.create_if_missing = true;
    options.error_if_exists = true;
    std::unique_ptr<DB> made;
    WORKS(DB::Open(options, path, &made));
    CHECK(made != nullptr && made->GetName() == path && made->c_store() != nullptr);
    Status locked = DB::Open(*options_of(engine).Set("create", "false"), path, &db);
    CHECK(locked.IsIOError() && locked.ToString().find("open already") != std::string::npos);
    WORKS(made->Close());
    WORKS(made->Close());
    CHECK(get(made.get(), "key").find("Shutdown in progress") == 0);
    CHECK(made->Put(WriteOptions(), "key", "value").IsShutdownInProgress());
    CHECK(made->SyncWAL().IsShutdownInProgress());
    WriteBatch batch;
    batch.Put("key", "value");
    CHECK(made->Write(WriteOptions(), &batch).IsShutdownInProgress() && made->GetSnapshot() == nullptr);
    made.reset();

    CHECK(DB::Open(options, path, &db).IsInvalidArgument() && db == nullptr);
    options.create_if_missing = false;
    Status exists = DB::Open(options, path, &db);
    CHECK(exists.IsInvalidArgument() && exists.ToString().find("already holds a store") != std::string::npos);
}

static void records(DB *db) {
    WriteOptions sync;
    sync.sync = true;
    WORKS(db->Put(sync, "ada", "countess"));
    CHECK(get(db, "ada") == "countess" && get(db, "bob") == "NotFound: ");
    WORKS(db->Put(WriteOptions(), Slice("\0z", 2), Slice()));
    CHECK(get(db, Slice("\0z", 2)).empty());
    Status refused = db->Put(sync, "", "of no key");
    CHECK(refused.IsInvalidArgument() && refused.getState() != nullptr);

    PinnableSlice pinned;
    WORKS(db->Get(ReadOptions(), "ada", &pinned));
    CHECK(pinned == Slice("countess") && pinned.IsPinned());
    PinnableSlice moved(std::move(pinned));
    CHECK(moved.ToString() == "countess" && !pinned.IsPinned() && pinned.empty());
    WORKS(db->Get(ReadOptions(), "ada", &pinned));
    pinned = std::move(moved);
    CHECK(pinned == Slice("countess"));
    CHECK(db->Get(ReadOptions(), "bob", &pinned).IsNotFound() && pinned.empty() && !pinned.IsPinned());

    WORKS(db->Delete(sync, "ada"));
    WORKS(db->Delete(sync, "ada"));
    WORKS(db->SingleDelete(sync, Slice("\0z", 2)));
    CHECK(get(db, "ada") == "NotFound: ");
    WORKS(db->Flush(FlushOptions()));
    WORKS(db->FlushWAL(true));
    std::string value;
    CHECK(db->GetProperty("stratakv.stats", &value) && value.find("\"records\"") != std::string::npos);
    CHECK(!db->GetProperty("rocksdb.stats", &value));
}

static void batches(DB *db) {
    WriteBatch batch;
    WORKS(batch.Put("gone", "1"));
    WORKS(db->Write(WriteOptions(), &batch));
    batch.Clear();
    CHECK(batch.Count() == 0 && batch.GetDataSize() == 0);
    batch.Put("one", "1");
    batch.Put("two", "2");
    batch.Delete("gone");
    batch.SingleDelete("never");
    CHECK(batch.Count() == 4 && batch.GetDataSize() == 17);
    WORKS(db->Write(WriteOptions(), &batch));
    WORKS(db->Write(WriteOptions(), &batch)); // it stays as it was
    CHECK(get(db, "one") == "1" && get(db, "two") == "2" && get(db, "gone") == "NotFound: ");

    batch.Put("three", "3");
    batch.Put("", "of no key");
    CHECK(db->Write(WriteOptions(), &batch).IsInvalidArgument() && get(db, "three") == "NotFound: ");
    CHECK(db->Write(WriteOptions(), nullptr).IsInvalidArgument());

    std::vector<std::string> values = {"left over"};
    std::vector<Status> found = db->MultiGet(ReadOptions(), {"one", "never", "two"}, &values);
    CHECK(found.size() == 3 && values.size() == 3 && found[0].ok() && found[1].IsNotFound() && found[2].ok());
    CHECK(values[0] == "1" && values[1].empty() && values[2] == "2");
    found = db->MultiGet(ReadOptions(), {"one", ""}, &values);
    CHECK(found[0].ok() && values[0] == "1" && found[1].IsInvalidArgument());
    WORKS(db->Delete(WriteOptions(), "one"));
    WORKS(db->Delete(WriteOptions(), "two"));
}

// The keys from where an iterator stands, to its end.
static std::string rest(Iterator *it, bool reverse) {
    std::string keys;
    for (; it->Valid(); reverse ? it->Prev() : it->Next()) {
        CHECK(it->value().ToString() == "of " + it->key().ToString());
        keys += it->key().ToString();
    }
    WORKS(it->status());
    return keys;
}

static std::string from(Iterator *it, const char *target) {
    it->Seek(target);
    return rest(it, false);
}

static std::string up_to(Iterator *it, const char *target) {
    it->SeekForPrev(target);
    return rest(it, true);
}

static void iterators(DB *db, ColumnFamilyHandle *family) {
    for (const char *key : {"b", "d", "f", "h"}) {
        WORKS(db->Put(WriteOptions(), family, key, std::string("of ") + key));
    }
    std::unique_ptr<Iterator> it(db->NewIterator(ReadOptions(), family));
    CHECK(!it->Valid() && it->status().ok());
    it->Next();
    it->Prev();
    CHECK(!it->Valid() && it->key().empty());
    it->SeekToFirst();
    CHECK(rest(it.get(), false) == "bdfh");
    it->SeekToLast();
    CHECK(rest(it.get(), true) == "hfdb");
    CHECK(from(it.get(), "d") == "dfh" && from(it.get(), "e") == "fh" && from(it.get(), "i").empty());
    CHECK(up_to(it.get(), "d") == "db" && up_to(it.get(), "e") == "db" && up_to(it.get(), "a").empty());

    // There and back, over each key and both ends.
    it->Seek("d");
    it->Next();
    it->Prev();
    CHECK(it->Valid() && it->key() == Slice("d") && it->value() == Slice("of d"));
    it->Prev();
    CHECK(it->key() == Slice("b"));
    it->Next();
    it->Next();
    CHECK(it->key() == Slice("f"));
    it->SeekToFirst();
    it->Prev();
    CHECK(!it->Valid() && it->status().ok());

    const Slice lower("d"), upper("h");
    ReadOptions bounded;
    bounded.iterate_lower_bound = &lower;
    bounded.iterate_upper_bound = &upper;
    it.reset(db->NewIterator(bounded, family));
    it->SeekToFirst();
    CHECK(rest(it.get(), false) == "df");
    it->SeekToLast();
    CHECK(rest(it.get(), true) == "fd");
    CHECK(from(it.get(), "a") == "df" && from(it.get(), "h").empty() && from(it.get(), "x").empty());
    CHECK(up_to(it.get(), "z") == "fd" && up_to(it.get(), "c").empty() && up_to(it.get(), "d") == "d");
    it->SeekToFirst();
    it->Prev();
    CHECK(!it->Valid());
    it->SeekToLast();
    it->Next();
    CHECK(!it->Valid() && it->status().ok());

    WORKS(db->DeleteRange(WriteOptions(), family, "c", "h"));
    it.reset(db->NewIterator(ReadOptions(), family));
    it->SeekToFirst();
    CHECK(rest(it.get(), false) == "bh");
    // A slice of nothing is the empty key, wherever it points to: it is below all others.
    WORKS(db->DeleteRange(WriteOptions(), family, Slice(), Slice(std::string_view())));
    WORKS(db->DeleteRange(WriteOptions(), family, Slice(), Slice(nullptr, 0)));
    it.reset(db->NewIterator(ReadOptions(), family));
    it->SeekToFirst();
    CHECK(rest(it.get(), false) == "bh");
    it->SeekForPrev(Slice(std::string_view()));
    CHECK(!it->Valid() && it->status().ok());
    WORKS(db->DeleteRange(WriteOptions(), family, "a", "z"));
}

static void snapshots(DB *db, ColumnFamilyHandle *family, const std::string &engine) {
    WORKS(db->Put(WriteOptions(), family, "k", "of k"));
    WORKS(db->Put(WriteOptions(), "k", "1"));
    Status why;
    const Snapshot *snapshot = db->GetSnapshot(&why);
    if (engine == "slab") {
        CHECK(snapshot == nullptr && why.IsNotSupported() && why.getState() != nullptr);
        db->ReleaseSnapshot(snapshot);
        return;
    }
    WORKS(why);
    WORKS(db->Put(WriteOptions(), family, "l", "of l"));
    WORKS(db->Put(WriteOptions(), "k", "2"));
    ReadOptions then;
    then.snapshot = snapshot;
    CHECK(get(db, "k") == "2" && get(db, "k", then) == "1" && get(db, "never", then) == "NotFound: ");
    std::vector<std::string> values;
    std::vector<Status> found = db->MultiGet(then, {"k", "never"}, &values);
    CHECK(found[0].ok() && values[0] == "1" && found[1].IsNotFound());
    std::unique_ptr<Iterator> it(db->NewIterator(then, family));
    it->SeekToFirst();
    CHECK(rest(it.get(), false) == "k");
    it.reset();
    db->ReleaseSnapshot(snapshot);
}

static void families(DB *db, const std::string &engine) {
    ColumnFamilyHandle *users = nullptr, *again = nullptr;
    WORKS(db->CreateColumnFamily(ColumnFamilyOptions(), "users", &users));
    CHECK(users->GetName() == "users" && db->DefaultColumnFamily()->GetName() == "default");
    Status exists = db->CreateColumnFamily(ColumnFamilyOptions(), "users", &again);
    CHECK(exists.IsInvalidArgument() && again == nullptr);
    CHECK(db->CreateColumnFamily(ColumnFamilyOptions(), "default", &again).IsInvalidArgument());

    WORKS(db->Put(WriteOptions(), users, "one", "of users"));
    std::string value;
    CHECK(db->Get(ReadOptions(), "one", &value).IsNotFound());
    WORKS(db->Get(ReadOptions(), users, "one", &value));
    CHECK(value == "of users");
    WriteBatch batch;
    batch.Put(users, "two", "2");
    batch.Put("two", "3");
    batch.Delete(users, "one");
    WORKS(db->Write(WriteOptions(), &batch));
    WORKS(db->Get(ReadOptions(), users, "two", &value));
    CHECK(value == "2" && get(db, "two") == "3");
    CHECK(db->Get(ReadOptions(), users, "one", &value).IsNotFound());
    WORKS(db->Delete(WriteOptions(), users, "two"));

    iterators(db, users);
    snapshots(db, users, engine);
    CHECK(db->DropColumnFamily(db->DefaultColumnFamily()).IsInvalidArgument());
    WORKS(db->DropColumnFamily(users));
    WORKS(db->DestroyColumnFamilyHandle(users));
    WORKS(db->DestroyColumnFamilyHandle(db->DefaultColumnFamily()));
    WORKS(db->CreateColumnFamily(ColumnFamilyOptions(), "kept", &users));
    WORKS(db->Put(WriteOptions(), users, "k", "v"));
    WORKS(db->DestroyColumnFamilyHandle(users));
}

// The default column family of engine hash has no order: that is told, not hidden.
static void order(DB *db, const std::string &engine) {
    WORKS(db->Put(WriteOptions(), "one", "1"));
    std::unique_ptr<Iterator> it(db->NewIterator(ReadOptions()));
    it->SeekToFirst();
    CHECK(it->status().IsNotSupported() == (engine == "hash") && it->Valid() == (engine != "hash"));
    it->Next();
    CHECK(it->status().IsNotSupported() == (engine == "hash"));
}

static void threads(DB *db) {
    std::vector<std::thread> all;
    std::atomic<int> right{0};
    for (int thread = 0; thread < 4; thread++) {
        all.emplace_back([db, thread, &right] {
            for (int at = 0; at < 50; at++) {
                std::string key = "t" + std::to_string(thread) + "." + std::to_string(at);
                right += db->Put(WriteOptions(), key, key).ok() && get(db, key) == key;
            }
        });
    }
    for (std::thread &thread : all) {
        thread.join();
    }
    CHECK(right == 200);
}

static void again(const std::string &path, const std::string &engine) {
    DB *db = nullptr;
    std::vector<ColumnFamilyHandle *> handles;
    WORKS(DB::Open(options_of(engine), path, {{"default", {}}, {"kept", {}}, {"new", {}}}, &handles, &db));
    std::string value;
    if (db != nullptr && handles.size() == 3) {
        WORKS(db->Get(ReadOptions(), handles[1], "k", &value));
        CHECK(value == "v");
        CHECK(db->Get(ReadOptions(), handles[2], "k", &value).IsNotFound());
        WORKS(db->Put(WriteOptions(), handles[0], "of the default one", "1"));
        CHECK(get(db, "of the default one") == "1" && get(db, "t3.49") == "t3.49");
    }
    for (ColumnFamilyHandle *handle : handles) {
        WORKS(db->DestroyColumnFamilyHandle(handle));
    }
    delete db;
    CHECK(DB::Open(options_of(engine), path, {{"", {}}}, &handles, &db).IsInvalidArgument());
    CHECK(db == nullptr && handles.empty());

    const std::string odd = "a \"name\"\\ of\n\x01 \u00e9";
    WORKS(DB::Open(options_of(engine), path, {{odd, {}}}, &handles, &db));
    stratakv_list *list = nullptr;
    CHECK(stratakv_list_open(db->c_store(), "a list", &list, nullptr) == STRATAKV_OK);
    stratakv_list_free(list);
    std::vector<std::string> names = {"left over"};
    CHECK(DB::ListColumnFamilies(options_of(engine), path, &names).IsIOError() && names.empty());
    WORKS(db->DestroyColumnFamilyHandle(handles[0]));
    delete db;
    WORKS(DB::ListColumnFamilies(options_of(engine), path, &names));
    std::sort(names.begin() + 1, names.end());
    CHECK((names == std::vector<std::string>{"default", odd, "kept", "new"}));
    CHECK(DB::ListColumnFamilies(options_of(engine), path + ".absent", &names).IsInvalidArgument() && names.empty());

    WORKS(DB::OpenForReadOnly(options_of(engine), path, &db));
    CHECK(get(db, "t0.0") == "t0.0" && !db->Put(WriteOptions(), "k", "v").ok());
    delete db;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: db DIRECTORY ENGINE\n");
        return 2;
    }
    const std::string path = argv[1], engine = argv[2];
    slices();
    statuses();
    opening(path, engine);
    DB *db = nullptr;
    WORKS(DB::Open(options_of(engine), path, &db));
    if (db == nullptr) {
        return 1;
    }
    records(db);
    batches(db);
    families(db, engine);
    order(db, engine);
    threads(db);
    delete db;
    again(path, engine);
    if (failures == 0) {
        std::puts("all holds");
    }
    return failures == 0 ? 0 : 1;
}
