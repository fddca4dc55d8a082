// For programs that were written for RocksDB: include this instead of rocksdb/db.h,
// rocksdb/options.h and so on, and they are compiled against StrataKV. Not together with RocksDB's
// own headers.
#ifndef STRATAKV_AS_ROCKSDB_H
#define STRATAKV_AS_ROCKSDB_H

#include "db.h"

#ifdef ROCKSDB_NAMESPACE
#error "RocksDB's own headers are included too: include these, or stratakv/as_rocksdb.h"
#endif
#define ROCKSDB_NAMESPACE rocksdb

namespace rocksdb = stratakv;

#endif
