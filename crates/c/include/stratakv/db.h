// StrataKV in the shape of rocksdb::DB: header-only, over the C library, C++17. See docs/cpp.md for
// what is the same, what differs and what is not there.
#ifndef STRATAKV_DB_H
#define STRATAKV_DB_H

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../stratakv.h"
#include "iterator.h"
#include "options.h"
#include "slice.h"
#include "status.h"
#include "write_batch.h"

namespace stratakv {

inline const std::string kDefaultColumnFamilyName = "default";

// Which column family DB::Open is to open.
struct ColumnFamilyDescriptor {
    std::string name = kDefaultColumnFamilyName;
    ColumnFamilyOptions options;
    ColumnFamilyDescriptor() = default;
    ColumnFamilyDescriptor(std::string of, ColumnFamilyOptions with) : name(std::move(of)), options(with) {}
};

// A value that DB::Get reads without a copy, where it lies in one piece in the store's cache. It
// holds the cache's memory until it is reset or gone.
class PinnableSlice : public Slice {
public:
    PinnableSlice() = default;
    PinnableSlice(const PinnableSlice &) = delete;
    PinnableSlice &operator=(const PinnableSlice &) = delete;
    PinnableSlice(PinnableSlice &&other) noexcept : Slice(other), record_(other.record_) { other.Forget(); }
    PinnableSlice &operator=(PinnableSlice &&other) noexcept {
        if (this != &other) {
            Reset();
            Slice::operator=(other);
            record_ = other.record_;
            other.Forget();
        }
        return *this;
    }
    ~PinnableSlice() { stratakv_record_free(&record_); }
    void Reset() {
        stratakv_record_free(&record_);
        Slice::clear();
    }
    bool IsPinned() const { return record_.value != nullptr; }

private:
    friend class DB;
    void Hold(const stratakv_record &record) {
        Reset();
        record_ = record;
        Slice::operator=(Slice(reinterpret_cast<const char *>(record.value), record.value_len));
    }
    void Forget() {
        record_ = stratakv_record();
        Slice::clear();
    }

    stratakv_record record_ = {};
};

// An open store. Any number of threads may use it at once. Deleting it closes it; iterators,
// snapshots and column families are deleted before.
class DB {
public:
    DB(const DB &) = delete;
    DB &operator=(const DB &) = delete;
    virtual ~DB() { Close().PermitUncheckedError(); }

    // Opens the store in directory `name`. *db is null after a failure.
    static Status Open(const Options &options, const std::string &name, DB **db) {
        return OpenAs(options, name, false, db);
    }
    static Status Open(const Options &options, const std::string &name, std::unique_ptr<DB> *db) {
        DB *opened = nullptr;
        Status status = Open(options, name, &opened);
        db->reset(opened);
        return status;
    }
    // The same, with column families, which are made if there are none of their names.
    static Status Open(const Options &options, const std::string &name,
                       const std::vector<ColumnFamilyDescriptor> &families, std::vector<ColumnFamilyHandle *> *handles,
                       DB **db) {
        handles->clear();
        Status status = Open(options, name, db);
        for (size_t at = 0; status.ok() && at < families.size(); at++) {
            ColumnFamilyHandle *handle = nullptr;
            status = (*db)->Family(families[at].name, false, &handle);
            if (status.ok()) {
                handles->push_back(handle);
            }
        }
        if (!status.ok()) {
            for (ColumnFamilyHandle *handle : *handles) {
                delete handle;
            }
            handles->clear();
            delete *db;
            *db = nullptr;
        }
        return status;
    }
    // The names of a store's column families, the default one first. Nobody may have it open.
    static Status ListColumnFamilies(const Options &options, const std::string &name,
                                     std::vector<std::string> *families);
    // Opens a store of which nothing is changed. It must exist.
    static Status OpenForReadOnly(const Options &options, const std::string &name, DB **db) {
        return OpenAs(options, name, true, db);
    }
    // Finishes what is in flight and lets the directory go. May be called again.
    virtual Status Close() {
        default_.reset();
        char *message = nullptr;
        stratakv_status outcome = stratakv_close(std::exchange(store_, nullptr), &message);
        return Status::FromC(outcome, message);
    }

    // --- Records -------------------------------------------------------------------------------

    Status Put(const WriteOptions &options, const Slice &key, const Slice &value) {
        return Put(options, nullptr, key, value);
    }
    virtual Status Put(const WriteOptions &options, ColumnFamilyHandle *family, const Slice &key, const Slice &value) {
        return Written(options, [&](char **message) {
            return stratakv_put(Records(family), key.data(), key.size(), value.data(), value.size(), nullptr, nullptr,
                                message);
        });
    }
    Status Delete(const WriteOptions &options, const Slice &key) { return Delete(options, nullptr, key); }
    // OK also if there was no record.
    virtual Status Delete(const WriteOptions &options, ColumnFamilyHandle *family, const Slice &key) {
        return Written(options, [&](char **message) {
            return Existing(stratakv_delete(Records(family), key.data(), key.size(), message));
        });
    }
    Status SingleDelete(const WriteOptions &options, const Slice &key) { return Delete(options, nullptr, key); }
    // Removes keys from `begin` up to, not including, `end`. Not one step: a crash may leave some.
    Status DeleteRange(const WriteOptions &options, const Slice &begin, const Slice &end) {
        return DeleteRange(options, nullptr, begin, end);
    }
    virtual Status DeleteRange(const WriteOptions &options, ColumnFamilyHandle *family, const Slice &begin,
                               const Slice &end) {
        return Written(options, [&](char **message) {
            return stratakv_delete_range(Records(family), begin.data(), begin.size(), end.data(), end.size(), nullptr,
                                         message);
        });
    }
    // Makes all changes as one. The batch stays as it is. A null batch is an invalid argument.
    virtual Status Write(const WriteOptions &options, WriteBatch *updates);

    Status Get(const ReadOptions &options, const Slice &key, std::string *value) {
        return Get(options, nullptr, key, value);
    }
    Status Get(const ReadOptions &options, ColumnFamilyHandle *family, const Slice &key, std::string *value) {
        PinnableSlice pinned;
        Status status = Get(options, family, key, &pinned);
        if (status.ok()) {
            value->assign(pinned.data(), pinned.size());
        }
        return status;
    }
    Status Get(const ReadOptions &options, const Slice &key, PinnableSlice *value) {
        return Get(options, nullptr, key, value);
    }
    virtual Status Get(const ReadOptions &options, ColumnFamilyHandle *family, const Slice &key, PinnableSlice *value) {
        value->Reset();
        stratakv_record record = {};
        char *message = nullptr;
        stratakv_status outcome =
            options.snapshot == nullptr
                ? stratakv_get(Records(family), key.data(), key.size(), &record, &message)
                : stratakv_snapshot_get(options.snapshot->snapshot_, Records(family), key.data(), key.size(), &record,
                                        &message);
        if (outcome == STRATAKV_OK) {
            value->Hold(record);
        }
        return Answer(outcome, message);
    }
    // Reads several records; their I/O overlaps, but for those of a snapshot. Statuses in the order
    // of the keys; `values` gets as many.
    virtual std::vector<Status> MultiGet(const ReadOptions &options, const std::vector<Slice> &keys,
                                         std::vector<std::string> *values);

    // An iterator over a column family, to be deleted by the caller, before the DB. Never null.
    Iterator *NewIterator(const ReadOptions &options) { return NewIterator(options, nullptr); }
    virtual Iterator *NewIterator(const ReadOptions &options, ColumnFamilyHandle *family) {
        return new Iterator(Records(family), options);
    }
    // The store as it is now; null, as with RocksDB, if its engine has no snapshots (hash and
    // matrix have them) or 64 are open. `why`, if it is given, then says so.
    virtual const Snapshot *GetSnapshot(Status *why = nullptr) {
        stratakv_snapshot *snapshot = nullptr;
        char *message = nullptr;
        stratakv_status outcome = stratakv_snapshot_new(store_, &snapshot, &message);
        Status status = Answer(outcome, message);
        if (why != nullptr) {
            *why = status;
        }
        return status.ok() ? new Snapshot(snapshot) : nullptr;
    }
    virtual void ReleaseSnapshot(const Snapshot *snapshot) { delete snapshot; }

    // --- Column families: collections of the store ------------------------------------------------

    ColumnFamilyHandle *DefaultColumnFamily() const { return default_.get(); }
    // Makes one. InvalidArgument if there is one of that name.
    virtual Status CreateColumnFamily(const ColumnFamilyOptions &, const std::string &name,
                                      ColumnFamilyHandle **handle) {
        return Family(name, true, handle);
    }
    // Removes one with all that is in it. The handle is still to be destroyed.
    virtual Status DropColumnFamily(ColumnFamilyHandle *family) {
        if (family == nullptr || family == default_.get()) {
            return Status::InvalidArgument("the default column family cannot be dropped: DeleteRange its keys");
        }
        char *message = nullptr;
        stratakv_status outcome = stratakv_collection_drop(store_, family->GetName().c_str(), &message);
        return Answer(outcome, message);
    }
    virtual Status DestroyColumnFamilyHandle(ColumnFamilyHandle *family) {
        if (family != default_.get()) {
            delete family;
        }
        return Status::OK();
    }

    // --- The store as a whole ---------------------------------------------------------------------

    // Makes every acknowledged write survive a power cut.
    virtual Status Flush(const FlushOptions &) { return SyncWAL(); }
    virtual Status FlushWAL(bool sync) { return sync ? SyncWAL() : Status::OK(); }
    virtual Status SyncWAL() {
        char *message = nullptr;
        stratakv_status outcome = stratakv_sync(store_, &message);
        return Answer(outcome, message);
    }
    // "stratakv.stats": counters and gauges as a JSON object. False for every other name.
    virtual bool GetProperty(const Slice &property, std::string *value) {
        char *json = nullptr;
        if (property != Slice("stratakv.stats") || stratakv_stats(store_, &json, nullptr) != STRATAKV_OK) {
            return false;
        }
        value->assign(json);
        stratakv_message_free(json);
        return true;
    }
    // The directory.
    const std::string &GetName() const { return name_; }
    // The store, for all that has no counterpart in RocksDB (stratakv.h). It stays the DB's.
    stratakv_store *c_store() const { return store_; }

private:
    DB(std::string name, stratakv_store *store, bool flushes)
        : name_(std::move(name)), store_(store), flushes_(flushes),
          default_(new ColumnFamilyHandle(kDefaultColumnFamilyName, stratakv_default(store), nullptr)) {}

    static Status OpenAs(const Options &options, const std::string &name, bool read_only, DB **db);
    Status Family(const std::string &name, bool must_be_new, ColumnFamilyHandle **handle);
    static std::vector<std::string> NamesOf(const std::string &json);

    // Null after Close: the C library then says what is wrong.
    const stratakv_collection *Records(const ColumnFamilyHandle *family) const {
        if (store_ == nullptr) {
            return nullptr;
        }
        return family == nullptr ? default_->records_ : family->records_;
    }
    static stratakv_status Existing(stratakv_status outcome) {
        return outcome == STRATAKV_ABSENT ? STRATAKV_OK : outcome;
    }
    Status Answer(stratakv_status outcome, char *message) const {
        if (store_ == nullptr && outcome == STRATAKV_ERROR_USAGE) {
            outcome = STRATAKV_ERROR_CLOSED;
        }
        return Status::FromC(outcome, message);
    }
    template <typename Call> Status Written(const WriteOptions &options, Call call) {
        char *message = nullptr;
        stratakv_status outcome = call(&message);
        Status status = Answer(outcome, message);
        return status.ok() && options.sync && flushes_ ? SyncWAL() : status;
    }

    std::string name_;
    stratakv_store *store_;
    // Writes that ask for it are flushed: the store acknowledges below the level of a power cut.
    bool flushes_;
    std::unique_ptr<ColumnFamilyHandle> default_;
};

inline Status DB::OpenAs(const Options &options, const std::string &name, bool read_only, DB **db) {
    *db = nullptr;
    std::unique_ptr<stratakv_options, void (*)(stratakv_options *)> chosen(stratakv_options_new(),
                                                                           stratakv_options_free);
    const bool creates = options.create_if_missing && !read_only;
    std::vector<std::pair<std::string, std::string>> named = options.named;
    named.emplace_back("create", creates ? "true" : "false");
    if (creates && options.error_if_exists) {
        named.emplace_back("create_new", "true");
    }
    if (read_only) {
        named.emplace_back("read_only", "true");
    }
    bool flushes = false;
    char *message = nullptr;
    for (const auto &[option, value] : named) {
        stratakv_status outcome = stratakv_options_set(chosen.get(), option.c_str(), value.c_str(), &message);
        if (outcome != STRATAKV_OK) {
            return Status::FromC(outcome, message);
        }
        flushes = option == "durability" ? value != "power_loss" : flushes;
    }
    stratakv_store *store = nullptr;
    stratakv_status outcome = stratakv_open(name.c_str(), chosen.get(), &store, &message);
    if (outcome != STRATAKV_OK) {
        return Status::FromC(outcome, message);
    }
    *db = new DB(name, store, flushes);
    if (options.error_if_exists && !creates && !read_only) {
        delete *db;
        *db = nullptr;
        return Status::InvalidArgument(name + " already holds a store, and error_if_exists is set");
    }
    return Status::OK();
}

inline Status DB::ListColumnFamilies(const Options &options, const std::string &name,
                                     std::vector<std::string> *families) {
    families->clear();
    Options existing = options;
    existing.create_if_missing = existing.error_if_exists = false;
    DB *opened = nullptr;
    Status status = OpenForReadOnly(existing, name, &opened);
    if (!status.ok()) {
        return status;
    }
    std::unique_ptr<DB> db(opened);
    char *json = nullptr;
    char *message = nullptr;
    stratakv_status outcome = stratakv_collection_names(db->store_, &json, &message);
    if (outcome != STRATAKV_OK) {
        return Status::FromC(outcome, message);
    }
    families->push_back(kDefaultColumnFamilyName);
    for (const std::string &one : NamesOf(json)) {
        int is_list = 0;
        if (stratakv_collection_is_list(db->store_, one.c_str(), &is_list, nullptr) == STRATAKV_OK && is_list == 0) {
            families->push_back(one);
        }
    }
    stratakv_message_free(json);
    return Status::OK();
}

// The strings of a JSON array. The library writes characters of Unicode as they are, and escapes
// those below a space.
inline std::vector<std::string> DB::NamesOf(const std::string &json) {
    std::vector<std::string> names;
    bool within = false;
    for (size_t at = 0; at < json.size(); at++) {
        if (json[at] == '"') {
            within = !within;
            if (within) {
                names.emplace_back();
            }
        } else if (within && json[at] == '\\' && at + 1 < json.size()) {
            static const char escaped[] = "b\bf\fn\nr\rt\t";
            const char *known = std::strchr(escaped, json[++at]);
            if (json[at] == 'u' && at + 4 < json.size()) {
                names.back().push_back(static_cast<char>(std::stoi(json.substr(at + 1, 4), nullptr, 16)));
                at += 4;
            } else {
                names.back().push_back(known == nullptr ? json[at] : known[1]);
            }
        } else if (within) {
            names.back().push_back(json[at]);
        }
    }
    return names;
}

inline Status DB::Family(const std::string &name, bool must_be_new, ColumnFamilyHandle **handle) {
    *handle = nullptr;
    if (name == kDefaultColumnFamilyName && !must_be_new) {
        *handle = new ColumnFamilyHandle(name, stratakv_default(store_), nullptr);
        return Status::OK();
    }
    char *message = nullptr;
    stratakv_collection *records = nullptr;
    stratakv_status found = stratakv_collection_existing(store_, name.c_str(), &records, &message);
    if (must_be_new && (found == STRATAKV_OK || name == kDefaultColumnFamilyName)) {
        stratakv_collection_free(records);
        stratakv_message_free(message);
        return Status::InvalidArgument("there is a column family " + name + " already: open it with DB::Open");
    }
    if (found == STRATAKV_ABSENT) {
        found = stratakv_collection_open(store_, name.c_str(), &records, &message);
    }
    if (found == STRATAKV_OK) {
        *handle = new ColumnFamilyHandle(name, records, records);
    }
    return Answer(found, message);
}

inline Status DB::Write(const WriteOptions &options, WriteBatch *updates) {
    if (updates == nullptr) {
        return Status::InvalidArgument("the batch is null");
    }
    std::unique_ptr<stratakv_batch, void (*)(stratakv_batch *)> batch(stratakv_batch_new(), stratakv_batch_free);
    char *message = nullptr;
    for (const WriteBatch::Change &change : updates->changes_) {
        const Slice key(change.key), value(change.value);
        const stratakv_collection *records = Records(change.family);
        stratakv_status outcome =
            change.deletes ? stratakv_batch_delete(batch.get(), records, key.data(), key.size(), STRATAKV_EXPECT_ANY, 0,
                                                   &message)
                           : stratakv_batch_put(batch.get(), records, key.data(), key.size(), value.data(),
                                                value.size(), nullptr, &message);
        if (outcome != STRATAKV_OK) {
            return Answer(outcome, message);
        }
    }
    return Written(options, [&](char **why) { return stratakv_write(store_, batch.get(), nullptr, why); });
}

inline std::vector<Status> DB::MultiGet(const ReadOptions &options, const std::vector<Slice> &keys,
                                        std::vector<std::string> *values) {
    const size_t count = keys.size();
    values->assign(count, std::string());
    std::vector<Status> statuses(count, Status::NotFound());
    std::vector<stratakv_record> records(count);
    std::vector<const void *> starts;
    std::vector<size_t> lengths;
    for (const Slice &key : keys) {
        starts.push_back(key.data());
        lengths.push_back(key.size());
    }
    const bool together = options.snapshot == nullptr &&
                          stratakv_multi_get(Records(nullptr), count, starts.data(), lengths.data(), records.data(),
                                             nullptr) == STRATAKV_OK;
    for (size_t at = 0; at < count; at++) {
        if (!together) { // of a snapshot, or one of them failed: which, each says itself
            statuses[at] = Get(options, keys[at], &(*values)[at]);
        } else if (records[at].value != nullptr) {
            (*values)[at].assign(reinterpret_cast<const char *>(records[at].value), records[at].value_len);
            statuses[at] = Status::OK();
            stratakv_record_free(&records[at]);
        }
    }
    return statuses;
}

} // namespace stratakv

#endif
