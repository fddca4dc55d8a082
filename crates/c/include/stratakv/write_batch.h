// Changes that are made as one, in the shape of rocksdb::WriteBatch; and column families.
#ifndef STRATAKV_WRITE_BATCH_H
#define STRATAKV_WRITE_BATCH_H

#include <string>
#include <utility>
#include <vector>

#include "../stratakv.h"
#include "slice.h"
#include "status.h"

namespace stratakv {

// A column family: a collection of the store. Deleted by DB::DestroyColumnFamilyHandle, before the
// DB.
class ColumnFamilyHandle {
public:
    ColumnFamilyHandle(const ColumnFamilyHandle &) = delete;
    ColumnFamilyHandle &operator=(const ColumnFamilyHandle &) = delete;
    ~ColumnFamilyHandle() { stratakv_collection_free(owned_); }
    const std::string &GetName() const { return name_; }

private:
    friend class DB;
    ColumnFamilyHandle(std::string name, const stratakv_collection *records, stratakv_collection *owned)
        : name_(std::move(name)), records_(records), owned_(owned) {}

    std::string name_;
    const stratakv_collection *records_;
    stratakv_collection *owned_; // null for the default one
};

// Changes that DB::Write makes all or not at all, crashes included. At most 64 MiB of keys and
// values; a bad key or value is told by DB::Write. It may be written again, to any store.
class WriteBatch {
public:
    Status Put(const Slice &key, const Slice &value) { return Put(nullptr, key, value); }
    Status Put(ColumnFamilyHandle *family, const Slice &key, const Slice &value) {
        return Add(Change{family, key.ToString(), value.ToString(), false});
    }
    Status Delete(const Slice &key) { return Delete(nullptr, key); }
    Status Delete(ColumnFamilyHandle *family, const Slice &key) {
        return Add(Change{family, key.ToString(), std::string(), true});
    }
    // Of a key that was put once: as Delete.
    Status SingleDelete(const Slice &key) { return Delete(nullptr, key); }
    Status SingleDelete(ColumnFamilyHandle *family, const Slice &key) { return Delete(family, key); }

    void Clear() {
        changes_.clear();
        bytes_ = 0;
    }
    // Number of changes.
    int Count() const { return static_cast<int>(changes_.size()); }
    // Bytes of keys and values.
    size_t GetDataSize() const { return bytes_; }

private:
    friend class DB;
    struct Change {
        ColumnFamilyHandle *family; // null: the default one
        std::string key;
        std::string value;
        bool deletes;
    };

    Status Add(Change change) {
        bytes_ += change.key.size() + change.value.size();
        changes_.push_back(std::move(change));
        return Status::OK();
    }

    std::vector<Change> changes_;
    size_t bytes_ = 0;
};

} // namespace stratakv

#endif
