// A program that was written for RocksDB: keeps accounts, moves money in batches, lists who has
// what. Nothing here knows StrataKV. The test compiles it against StrataKV by changing its includes
// only.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "rocksdb/slice.h"
#include "rocksdb/write_batch.h"

using ROCKSDB_NAMESPACE::DB;
using ROCKSDB_NAMESPACE::Iterator;
using ROCKSDB_NAMESPACE::Options;
using ROCKSDB_NAMESPACE::PinnableSlice;
using ROCKSDB_NAMESPACE::ReadOptions;
using ROCKSDB_NAMESPACE::Slice;
using ROCKSDB_NAMESPACE::Status;
using ROCKSDB_NAMESPACE::WriteBatch;
using ROCKSDB_NAMESPACE::WriteOptions;

static void must(const Status &status) {
    if (!status.ok()) {
        std::fprintf(stderr, "%s\n", status.ToString().c_str());
        std::exit(1);
    }
}

static long balance(DB *db, const std::string &who) {
    std::string text;
    Status status = db->Get(ReadOptions(), who, &text);
    if (status.IsNotFound()) {
        return 0;
    }
    must(status);
    return std::stol(text);
}

static void transfer(DB *db, const std::string &from, const std::string &to, long amount) {
    WriteBatch batch;
    batch.Put(from, std::to_string(balance(db, from) - amount));
    batch.Put(to, std::to_string(balance(db, to) + amount));
    batch.Delete("account/closed");
    must(db->Write(WriteOptions(), &batch));
}

int main(int argc, char **argv) {
    const std::string path = argc > 1 ? argv[1] : "data";
    DB *opened = nullptr;
    Options options;
    options.create_if_missing = false;
    std::printf("without create_if_missing: %s\n", DB::Open(options, path, &opened).ok() ? "opened" : "refused");
    options.IncreaseParallelism();
    options.OptimizeLevelStyleCompaction();
    options.create_if_missing = true;
    must(DB::Open(options, path, &opened));
    std::unique_ptr<DB> db(opened);

    WriteOptions sync;
    sync.sync = true;
    must(db->Put(sync, "account/ada", "100"));
    must(db->Put(WriteOptions(), "account/closed", "0"));
    must(db->Put(WriteOptions(), "other", ""));
    transfer(db.get(), "account/ada", "account/bob", 30);
    transfer(db.get(), "account/bob", "account/cyd", 5);

    PinnableSlice pinned;
    must(db->Get(ReadOptions(), db->DefaultColumnFamily(), "account/ada", &pinned));
    std::printf("ada %s\n", pinned.ToString().c_str());
    pinned.Reset();

    std::vector<std::string> values;
    std::vector<Status> found = db->MultiGet(ReadOptions(), {"account/bob", "account/closed", "account/cyd"}, &values);
    for (size_t at = 0; at < found.size(); at++) {
        std::printf("%s\n", found[at].ok() ? values[at].c_str() : found[at].ToString().c_str());
    }

    std::unique_ptr<Iterator> it(db->NewIterator(ReadOptions()));
    for (it->Seek("account/"); it->Valid() && it->key().starts_with("account/"); it->Next()) {
        std::printf("%s=%s\n", it->key().ToString().c_str(), it->value().ToString().c_str());
    }
    for (it->SeekToLast(); it->Valid(); it->Prev()) {
        std::printf("%s<", it->key().ToString().c_str());
    }
    it->SeekForPrev("account/bz");
    std::printf("\n%s\n", it->Valid() ? it->key().ToString().c_str() : "none");
    must(it->status());
    it.reset();

    must(db->Delete(WriteOptions(), "account/ada"));
    must(db->Delete(WriteOptions(), "account/never"));
    std::printf("ada %ld\n", balance(db.get(), "account/ada"));
    return 0;
}
