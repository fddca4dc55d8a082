// Walks over records in the order of their keys, in the shape of rocksdb::Iterator.
#ifndef STRATAKV_ITERATOR_H
#define STRATAKV_ITERATOR_H

#include <memory>
#include <string>

#include "../stratakv.h"
#include "options.h"
#include "slice.h"
#include "status.h"

namespace stratakv {

// A store as it was when it was asked for (DB::GetSnapshot), until DB::ReleaseSnapshot.
class Snapshot {
public:
    Snapshot(const Snapshot &) = delete;
    Snapshot &operator=(const Snapshot &) = delete;

private:
    friend class DB;
    friend class Iterator;
    explicit Snapshot(stratakv_snapshot *snapshot) : snapshot_(snapshot) {}
    ~Snapshot() { stratakv_snapshot_free(snapshot_); }

    stratakv_snapshot *snapshot_;
};

// A position among the records of a column family. Of a snapshot if ReadOptions has one; else a
// record is as it is when the iterator comes to it, which differs from RocksDB. One thread at a
// time. It is deleted before its DB, and does nothing until it is told where to begin.
class Iterator {
public:
    Iterator(const Iterator &) = delete;
    Iterator &operator=(const Iterator &) = delete;
    virtual ~Iterator() = default;

    // Whether it stands at a record. If not, status() tells whether that is the end or a failure.
    bool Valid() const { return valid_; }
    // OK at the end; else why there is no record, such as a damaged one.
    Status status() const { return status_; }
    // Of the record it stands at, until it moves; empty if it stands at none.
    Slice key() const { return key_; }
    Slice value() const { return value_; }

    void SeekToFirst() { Forward(Slice(), false); }
    void SeekToLast() { Backward(nullptr, false); }
    // To the first key from `target` on.
    void Seek(const Slice &target) { Forward(target, false); }
    // To the last key up to `target`.
    void SeekForPrev(const Slice &target) { Backward(&target, true); }
    // To the next key, and to the one before. Nothing happens if it is not Valid.
    void Next() { Move(false); }
    void Prev() { Move(true); }

private:
    friend class DB;
    Iterator(const stratakv_collection *records, const ReadOptions &options) : records_(records), options_(options) {}

    struct ScanFree {
        void operator()(stratakv_scan *scan) const { stratakv_scan_free(scan); }
    };

    void Move(bool reverse) {
        if (!valid_) {
            return;
        }
        if (reverse == reverse_) {
            return Step();
        }
        // It turns round: the record here belongs to the scan that ends.
        const std::string here = key_.ToString();
        const Slice target(here);
        return reverse ? Backward(&target, false) : Forward(target, true);
    }

    void Forward(Slice from, bool excluded) {
        const Slice *lower = options_.iterate_lower_bound;
        const Slice *upper = options_.iterate_upper_bound;
        if (lower != nullptr && from.compare(*lower) < 0) {
            from = *lower;
            excluded = false;
        }
        if (upper != nullptr && from.compare(*upper) >= 0) {
            return Leave(Status::OK());
        }
        stratakv_scan_options scan = {};
        scan.from = from.data();
        scan.from_len = from.size();
        scan.from_excluded = excluded;
        if (upper != nullptr) {
            scan.to = upper->data();
            scan.to_len = upper->size();
        }
        Begin(scan);
    }

    void Backward(const Slice *to, bool included) {
        const Slice *lower = options_.iterate_lower_bound;
        const Slice *upper = options_.iterate_upper_bound;
        if (upper != nullptr && (to == nullptr || to->compare(*upper) >= 0)) {
            to = upper;
            included = false;
        }
        if (lower != nullptr && to != nullptr && to->compare(*lower) < (included ? 0 : 1)) {
            return Leave(Status::OK());
        }
        stratakv_scan_options scan = {};
        scan.reverse = 1;
        if (to != nullptr) {
            scan.to = to->data();
            scan.to_len = to->size();
            scan.to_included = included;
        }
        if (lower != nullptr) {
            scan.from = lower->data();
            scan.from_len = lower->size();
        }
        Begin(scan);
    }

    void Begin(const stratakv_scan_options &options) {
        Leave(Status::OK());
        reverse_ = options.reverse != 0;
        char *message = nullptr;
        stratakv_scan *scan = nullptr;
        const stratakv_snapshot *snapshot = options_.snapshot == nullptr ? nullptr : options_.snapshot->snapshot_;
        stratakv_status outcome = stratakv_scan_new(records_, &options, snapshot, &scan, &message);
        scan_.reset(scan);
        if (outcome != STRATAKV_OK) {
            return Leave(Status::FromC(outcome, message));
        }
        Step();
    }

    void Step() {
        char *message = nullptr;
        const uint8_t *key = nullptr;
        size_t key_len = 0;
        stratakv_record record = {};
        stratakv_status outcome = stratakv_scan_next(scan_.get(), &key, &key_len, &record, &message);
        if (outcome != STRATAKV_OK) {
            return Leave(outcome == STRATAKV_ABSENT ? Status::OK() : Status::FromC(outcome, message));
        }
        valid_ = true;
        key_ = Slice(reinterpret_cast<const char *>(key), key_len);
        value_ = Slice(reinterpret_cast<const char *>(record.value), record.value_len);
    }

    // It stands at no record any more.
    void Leave(Status why) {
        valid_ = false;
        key_ = value_ = Slice();
        status_ = std::move(why);
        scan_.reset();
    }

    const stratakv_collection *records_;
    ReadOptions options_;
    std::unique_ptr<stratakv_scan, ScanFree> scan_;
    Slice key_;
    Slice value_;
    Status status_;
    bool valid_ = false;
    bool reverse_ = false;
};

} // namespace stratakv

#endif
