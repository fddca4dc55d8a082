// Options, in the shape of rocksdb::Options. Fields that have no counterpart are not there.
#ifndef STRATAKV_OPTIONS_H
#define STRATAKV_OPTIONS_H

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "slice.h"

namespace stratakv {

class Snapshot;

// How to open a store.
struct Options {
    // Create the store if there is none. As with RocksDB the default is no.
    bool create_if_missing = false;
    // Fail if there is a store.
    bool error_if_exists = false;

    // Threads that complete I/O in the background: the option `cores`.
    Options *IncreaseParallelism(int total_threads = 16) {
        unsigned machine = std::thread::hardware_concurrency();
        unsigned wanted = total_threads < 1 ? 1 : static_cast<unsigned>(total_threads);
        return Set("cores", std::to_string(machine != 0 && wanted > machine ? machine : wanted));
    }
    // For programs that call it: does nothing. No engine here has levels that it would tune.
    Options *OptimizeLevelStyleCompaction() { return this; }

    // Sets an option of the store by its name in stratakv_options_set (stratakv.h), such as
    // Set("engine", "hash"), Set("memory_bytes", "4GiB"). A bad one is told by DB::Open.
    Options *Set(std::string name, std::string value) {
        named.emplace_back(std::move(name), std::move(value));
        return this;
    }

    // What Set was given, in order.
    std::vector<std::pair<std::string, std::string>> named;
};
using DBOptions = Options;

// How a column family is made: as the store is.
struct ColumnFamilyOptions {};

// How to read.
struct ReadOptions {
    // Read as of then; null: as of now.
    const Snapshot *snapshot = nullptr;
    // Bounds of an iterator: the lower belongs to it, the upper does not. What they point to must
    // outlive the iterator.
    const Slice *iterate_lower_bound = nullptr;
    const Slice *iterate_upper_bound = nullptr;
};

// How to write.
struct WriteOptions {
    // Return when the write survives a power cut. A store at level `power_loss`, the default, does
    // so without being asked; elsewhere this flushes.
    bool sync = false;
};

// How to flush: there is nothing to choose.
struct FlushOptions {};

} // namespace stratakv

#endif
