/* StrataKV from C: a persistent key-value store for NVMe, cloud volumes, persistent memory and DRAM.
 *
 * Link with libstratakv_c (cargo build --release -p stratakv-c). See docs/c.md for a tour.
 *
 * Outcomes. Functions that can fail return a stratakv_status. 0 is success; STRATAKV_ABSENT and STRATAKV_UNMET are answers, not errors; everything from
 * STRATAKV_ERROR on is an error, and unless it is STRATAKV_ERROR_UNKNOWN or STRATAKV_ERROR_INTERNAL, or the function says that it is not one step, nothing was changed. The last argument `message` may be NULL; else *message is set to NULL, or, on an
 * error, to a text that says what, why and what to do next, to be given to stratakv_message_free.
 *
 * Bytes. Keys (1 to 65,535 bytes) and values (up to 64 MiB) are a pointer and a length; they are copied, so they need to be valid during the call only. A NULL pointer is
 * allowed where the length is 0. Names, paths and options are strings in UTF-8 that end with a zero byte.
 *
 * Threads. A store, its collections and lists may be used by any number of threads at once. An options, batch, transaction, scan, snapshot or elements handle
 * belongs to one thread at a time.
 *
 * Lifetimes. What a function hands out through a pointer to a pointer is freed by the caller with the function of its name, in any order: collections, scans and so on stay valid
 * memory after stratakv_close, and answer STRATAKV_ERROR_CLOSED. Freeing NULL does nothing. In a child of fork the
 * parent's handles answer STRATAKV_ERROR_CLOSED and do nothing; they can be freed there.
 *
 * Times are milliseconds since 1970 by the clock of the system (stratakv_wall_ms); an expiry of 0 is never.
 */
#ifndef STRATAKV_H
#define STRATAKV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Outcomes. Numbers stay what they are. */
typedef enum stratakv_status {
    STRATAKV_OK = 0,
    STRATAKV_ABSENT = 1,             /* there is no such key, element, name; a scan has ended */
    STRATAKV_UNMET = 2,              /* a condition did not hold, or a transaction met a conflict: nothing was changed */
    STRATAKV_ERROR = 16,             /* errors begin here */
    STRATAKV_ERROR_USAGE = 16,       /* a bad argument; will fail again */
    STRATAKV_ERROR_NOT_FOUND = 17,   /* no such store */
    STRATAKV_ERROR_CORRUPT = 18,     /* damaged data */
    STRATAKV_ERROR_LOCKED = 19,      /* open in another process */
    STRATAKV_ERROR_FULL = 20,        /* no space, or no memory for the index */
    STRATAKV_ERROR_UNSUPPORTED = 21, /* not offered by this engine, medium or format version */
    STRATAKV_ERROR_IO = 22,          /* the device or the system failed */
    STRATAKV_ERROR_CLOSED = 23,      /* the store is closed */
    STRATAKV_ERROR_UNKNOWN = 24,     /* the outcome is not known */
    STRATAKV_ERROR_BUSY = 25,        /* too much waits: try again */
    STRATAKV_ERROR_INTERNAL = 26     /* a defect of StrataKV: please report it */
} stratakv_status;

typedef struct stratakv_options stratakv_options;
typedef struct stratakv_store stratakv_store;
typedef struct stratakv_collection stratakv_collection;
typedef struct stratakv_list stratakv_list;
typedef struct stratakv_position stratakv_position;
typedef struct stratakv_elements stratakv_elements;
typedef struct stratakv_scan stratakv_scan;
typedef struct stratakv_snapshot stratakv_snapshot;
typedef struct stratakv_batch stratakv_batch;
typedef struct stratakv_transaction stratakv_transaction;

/* A value with what belongs to it. Those that a function fills in are given to stratakv_record_free. */
typedef struct stratakv_record {
    const uint8_t *value; /* not NULL where there is a record, also if it is empty */
    size_t value_len;
    uint64_t version;     /* grows with every write of the key */
    uint64_t expiry_ms;   /* 0: never */
    uint32_t flags;       /* opaque to the store */
    void *owner;          /* the library's */
} stratakv_record;

/* Pages: records one behind the other, for languages in which each call costs much. An entry is this, the key, the value, and zeros up to a multiple of 8 bytes. */
typedef struct stratakv_entry {
    uint64_t version;   /* 0 in a page that is written */
    uint64_t expiry_ms; /* 0: never */
    uint64_t value_len; /* STRATAKV_DELETED, in a page that is written: the key is removed, and no value follows */
    uint32_t key_len;
    uint32_t flags;
} stratakv_entry;
#define STRATAKV_DELETED UINT64_MAX

/* Conditions of writes. */
typedef enum stratakv_expect {
    STRATAKV_EXPECT_ANY = 0,
    STRATAKV_EXPECT_ABSENT = 1,
    STRATAKV_EXPECT_PRESENT = 2,
    STRATAKV_EXPECT_VERSION = 3
} stratakv_expect;

/* How to write one record. All zero is the default. */
typedef struct stratakv_put_options {
    uint64_t expiry_ms;      /* 0: never */
    uint64_t expect_version; /* with STRATAKV_EXPECT_VERSION */
    uint32_t flags;
    uint32_t expect;         /* a stratakv_expect */
} stratakv_put_options;

/* The library's version, "0.1.0". */
const char *stratakv_version(void);
/* A status in a word: "corrupt"; "?" for what is none. */
const char *stratakv_status_name(int status);
void stratakv_message_free(char *message);
void stratakv_record_free(stratakv_record *record);

/* --- Opening ------------------------------------------------------------------------------------------------------------ */

stratakv_options *stratakv_options_new(void);
void stratakv_options_free(stratakv_options *options);
/* Sets an option by its name. Lengths are "4096" or "64MiB"; yes and no are "true" and "false".
 *   create, create_new, read_only     true or false
 *   save_at_shutdown                  true or false, of engine tier without a second tier (was park)
 *   engine                            slab, hash, matrix or tier
 *   durability                        power_loss, process_crash or memory
 *   memory_bytes, capacity_bytes, region_bytes, pmem_levels_bytes (was layer_bytes)
 *   region_path, directory, device    may be set several times
 *   placement                         in_place or packed
 *   compression                       none or lz4, of engine matrix
 *   io                                auto, uring or blocking
 *   shards, depth, cores              numbers */
stratakv_status stratakv_options_set(stratakv_options *options, const char *name, const char *value, char **message);
/* The sort key of a key: as many of its bytes as fit go to `sort_key`, and how many it has is returned (at most 65,535 are of use). If they did not fit it is called again with
 * room for all. It must always give the same bytes for the same key, may be called by any thread until the store is closed and every
 * collection, batch, transaction and scan in that order is freed, must not call the library, and must not be left by longjmp or an exception. */
typedef size_t (*stratakv_sort_key)(void *context, const uint8_t *key, size_t key_len, uint8_t *sort_key, size_t room);
/* Registers an order of keys under a name (stratakv_collection_in_order). */
stratakv_status stratakv_options_order(stratakv_options *options, const char *name, stratakv_sort_key sort_key, void *context, char **message);

/* Opens the store in directory `path`, creating it if there is none; `options` may be NULL, and may be freed or used again afterwards. */
stratakv_status stratakv_open(const char *path, const stratakv_options *options, stratakv_store **store, char **message);
/* Finishes what is in flight, makes it durable, lets the directory go and frees the handle, whatever it returns. */
stratakv_status stratakv_close(stratakv_store *store, char **message);

/* --- The store as a whole ----------------------------------------------------------------------------------------------- */

/* Its engine's name: "slab", "hash", "matrix", "tier"; "?" for NULL. */
const char *stratakv_engine(const stratakv_store *store);
/* Now, by the store's clock. */
uint64_t stratakv_wall_ms(const stratakv_store *store);
/* Makes every acknowledged write durable at power loss, whatever its level was. */
stratakv_status stratakv_sync(stratakv_store *store, char **message);
/* Counters and gauges as a JSON object of numbers, to be given to stratakv_message_free. */
stratakv_status stratakv_stats(stratakv_store *store, char **json, char **message);
/* Writes a backup of one moment into a new or empty directory while the store serves. `records` may be NULL. */
stratakv_status stratakv_backup(stratakv_store *store, const char *directory, uint64_t *records, char **message);
/* Makes a new store in `directory` from a backup. `options` and `records` may be NULL. */
stratakv_status stratakv_restore(const char *backup, const char *directory, const stratakv_options *options, uint64_t *records, char **message);
/* Reads and verifies a whole store that no process has open. STRATAKV_ERROR_CORRUPT with a message that lists the damage if it is not sound. */
stratakv_status stratakv_check(const char *path, uint64_t *records, char **message);

/* --- Collections: key spaces of their own ------------------------------------------------------------------------------- */

/* The default collection: the store's own, valid until stratakv_close, not to be freed. NULL for NULL. */
const stratakv_collection *stratakv_default(const stratakv_store *store);
/* The collection of that name, made if there is none. */
stratakv_status stratakv_collection_open(stratakv_store *store, const char *name, stratakv_collection **collection, char **message);
/* The same, made in a registered order if there is none. */
stratakv_status stratakv_collection_in_order(stratakv_store *store, const char *name, const char *order, stratakv_collection **collection, char **message);
/* The collection of that name; STRATAKV_ABSENT if there is none. */
stratakv_status stratakv_collection_existing(stratakv_store *store, const char *name, stratakv_collection **collection, char **message);
void stratakv_collection_free(stratakv_collection *collection);
/* Removes a collection or list with all that is in it; STRATAKV_ABSENT if there is none. */
stratakv_status stratakv_collection_drop(stratakv_store *store, const char *name, char **message);
/* When all of a collection or list expires; STRATAKV_ABSENT if there is none. */
stratakv_status stratakv_collection_set_expiry(stratakv_store *store, const char *name, uint64_t expiry_ms, char **message);
stratakv_status stratakv_collection_expiry(stratakv_store *store, const char *name, uint64_t *expiry_ms, char **message);
/* Whether the name stands for a list (1) or a collection (0); STRATAKV_ABSENT if for nothing. */
stratakv_status stratakv_collection_is_list(stratakv_store *store, const char *name, int *is_list, char **message);
/* All names, as a JSON array of strings, to be given to stratakv_message_free. */
stratakv_status stratakv_collection_names(stratakv_store *store, char **json, char **message);

/* --- Records ------------------------------------------------------------------------------------------------------------ */

/* Reads a record; STRATAKV_ABSENT, and a record that is all zero, if there is none. */
stratakv_status stratakv_get(const stratakv_collection *collection, const void *key, size_t key_len, stratakv_record *record, char **message);
/* The same. A value that is not empty and not longer than `room_len` is copied to `room`, where `record->value` points then; such a record needs no stratakv_record_free. `room` must not overlap `key`. */
stratakv_status stratakv_get_into(const stratakv_collection *collection, const void *key, size_t key_len, void *room, size_t room_len, stratakv_record *record, char **message);
/* Reads `count` records at once; their I/O overlaps. `value` is NULL where there is none. */
stratakv_status stratakv_multi_get(const stratakv_collection *collection, size_t count, const void *const *keys, const size_t *key_lens, stratakv_record *records, char **message);
/* Writes a record; returns when it is durable. STRATAKV_UNMET if its condition does not hold. `options` and `version` may be NULL. */
stratakv_status stratakv_put(const stratakv_collection *collection, const void *key, size_t key_len, const void *value, size_t value_len, const stratakv_put_options *options, uint64_t *version, char **message);
/* Removes a record; STRATAKV_ABSENT if there was none. */
stratakv_status stratakv_delete(const stratakv_collection *collection, const void *key, size_t key_len, char **message);

/* What a stratakv_next makes of a record. */
typedef enum stratakv_action { STRATAKV_KEEP = 0, STRATAKV_REPLACE = 1, STRATAKV_REMOVE = 2 } stratakv_action;
typedef struct stratakv_replacement {
    const void *value; /* valid until the next call, or until stratakv_fetch_update returns */
    size_t value_len;
    uint64_t expiry_ms;
    uint32_t flags;
} stratakv_replacement;
/* Decides about a record, NULL if there is none, and is not left by longjmp or an exception: returns a stratakv_action, and fills `next` in (it comes all zero) if that is STRATAKV_REPLACE. */
typedef int (*stratakv_next)(void *context, const stratakv_record *before, stratakv_replacement *next);
/* Changes a record in dependence on itself, as one step: `next` is called again whenever somebody else was faster. `version` (0 if nothing was changed) may be NULL. */
stratakv_status stratakv_fetch_update(const stratakv_collection *collection, const void *key, size_t key_len, stratakv_next next, void *context, uint64_t *version, char **message);
/* Adds to a counter of decimal digits, wrapping at 64 bits; one that does not exist counts from 0. `sum` may be NULL. */
stratakv_status stratakv_increment(const stratakv_collection *collection, const void *key, size_t key_len, uint64_t by, uint64_t *sum, char **message);
/* Subtracts, stopping at 0. */
stratakv_status stratakv_decrement(const stratakv_collection *collection, const void *key, size_t key_len, uint64_t by, uint64_t *left, char **message);
/* Adds bytes behind, or before, a value as one step; STRATAKV_ABSENT if there is no record. */
stratakv_status stratakv_append(const stratakv_collection *collection, const void *key, size_t key_len, const void *value, size_t value_len, char **message);
stratakv_status stratakv_prepend(const stratakv_collection *collection, const void *key, size_t key_len, const void *value, size_t value_len, char **message);
/* Sets when a record expires (0: never); STRATAKV_ABSENT if there is none. */
stratakv_status stratakv_expire(const stratakv_collection *collection, const void *key, size_t key_len, uint64_t expiry_ms, char **message);
/* How long a record lives on; UINT64_MAX if it does not expire; STRATAKV_ABSENT if there is none. */
stratakv_status stratakv_ttl(const stratakv_collection *collection, const void *key, size_t key_len, uint64_t *ttl_ms, char **message);
/* Removes the keys from `from` up to, not including, `to`; NULL for no bound. Not one step. `count` may be NULL. */
stratakv_status stratakv_delete_range(const stratakv_collection *collection, const void *from, size_t from_len, const void *to, size_t to_len, uint64_t *count, char **message);
stratakv_status stratakv_delete_prefix(const stratakv_collection *collection, const void *prefix, size_t prefix_len, uint64_t *count, char **message);
/* How many records there are; looks at each key in the index. */
stratakv_status stratakv_count(const stratakv_collection *collection, uint64_t *count, char **message);

/* --- Scans and snapshots ------------------------------------------------------------------------------------------------ */

/* Which keys, and how. All zero is everything, upwards. */
typedef struct stratakv_scan_options {
    const void *from; /* NULL: no bound */
    size_t from_len;
    const void *to;   /* NULL: no bound */
    size_t to_len;
    const void *prefix; /* instead of bounds; NULL: none */
    size_t prefix_len;
    uint8_t from_excluded; /* keys from `from` on without itself */
    uint8_t to_included;   /* keys up to `to` with itself */
    uint8_t is_sort_prefix; /* `prefix` is of the sort key of an order */
    uint8_t reverse;       /* downwards */
    uint8_t keys_only;     /* costs no I/O; records come back empty */
} stratakv_scan_options;
/* Begins a scan; of a snapshot if there is one, else each record is read as it is then. `options` and `snapshot` may be NULL. */
stratakv_status stratakv_scan_new(const stratakv_collection *collection, const stratakv_scan_options *options, const stratakv_snapshot *snapshot, stratakv_scan **scan, char **message);
/* The next key and record; STRATAKV_ABSENT at the end. Both belong to the scan, until the next call. After an error the scan goes on behind the record that cannot be
 * read. `record` may be NULL. */
stratakv_status stratakv_scan_next(stratakv_scan *scan, const uint8_t **key, size_t *key_len, stratakv_record *record, char **message);
/* The next records as a page (stratakv_entry): those that are read already, one at least, as many as find room in `room_len` bytes; `*len` bytes of `*count` entries. STRATAKV_ABSENT at the end. Where not even the next
 * one finds room, `*count` is 0 and `*len` is what it needs: call again with as much, or call stratakv_scan_next. After an error as stratakv_scan_next. */
stratakv_status stratakv_scan_page(stratakv_scan *scan, void *room, size_t room_len, size_t *len, size_t *count, char **message);
/* As stratakv_scan_new and then stratakv_scan_page. `*scan` is NULL if nothing follows these records, and if there is no scan for want of good arguments: else free it. */
stratakv_status stratakv_scan_begin(const stratakv_collection *collection, const stratakv_scan_options *options, const stratakv_snapshot *snapshot, void *room, size_t room_len, size_t *len, size_t *count, stratakv_scan **scan, char **message);
void stratakv_scan_free(stratakv_scan *scan);

/* All collections as they are now. What writers replace keeps its space until it is freed. */
stratakv_status stratakv_snapshot_new(stratakv_store *store, stratakv_snapshot **snapshot, char **message);
stratakv_status stratakv_snapshot_get(const stratakv_snapshot *snapshot, const stratakv_collection *collection, const void *key, size_t key_len, stratakv_record *record, char **message);
void stratakv_snapshot_free(stratakv_snapshot *snapshot);

/* --- Lists -------------------------------------------------------------------------------------------------------------- */

typedef enum stratakv_end { STRATAKV_FRONT = 0, STRATAKV_BACK = 1 } stratakv_end;

stratakv_status stratakv_list_open(stratakv_store *store, const char *name, stratakv_list **list, char **message);
stratakv_status stratakv_list_existing(stratakv_store *store, const char *name, stratakv_list **list, char **message);
void stratakv_list_free(stratakv_list *list);
stratakv_status stratakv_list_count(const stratakv_list *list, uint64_t *count, char **message);
stratakv_status stratakv_list_push(const stratakv_list *list, int end, const void *value, size_t value_len, char **message);
/* Puts `count` elements at an end as one, one after the other. */
stratakv_status stratakv_list_push_all(const stratakv_list *list, int end, size_t count, const void *const *values, const size_t *value_lens, char **message);
/* Takes the element at an end; STRATAKV_ABSENT if the list is empty. Of the record only the value counts. */
stratakv_status stratakv_list_pop(const stratakv_list *list, int end, stratakv_record *value, char **message);
/* Takes up to `room` elements from an end as one; how many is *count. */
stratakv_status stratakv_list_pop_many(const stratakv_list *list, int end, size_t room, stratakv_record *values, size_t *count, char **message);
/* Moves an element from an end of a list to an end of another one, or of itself, as one; the value may be NULL. */
stratakv_status stratakv_list_move(const stratakv_list *from, int from_end, const stratakv_list *to, int to_end, stratakv_record *value, char **message);
/* The element at an index, from the back if it is negative. */
stratakv_status stratakv_list_get(const stratakv_list *list, int64_t index, stratakv_record *value, char **message);
/* Inserts an element that has that index then; from the back if it is negative, -1 being the new last one. STRATAKV_ABSENT if the list is too short for that. */
stratakv_status stratakv_list_insert(const stratakv_list *list, int64_t index, const void *value, size_t value_len, char **message);
/* Names the element at an index as it is now; it stands for nothing once that is erased or replaced. */
stratakv_status stratakv_list_position(const stratakv_list *list, int64_t index, stratakv_position **position, char **message);
void stratakv_position_free(stratakv_position *position);
/* By position; STRATAKV_ABSENT if the element is gone. */
stratakv_status stratakv_list_at(const stratakv_list *list, const stratakv_position *position, stratakv_record *value, char **message);
stratakv_status stratakv_list_insert_before(const stratakv_list *list, const stratakv_position *position, const void *value, size_t value_len, char **message);
stratakv_status stratakv_list_insert_after(const stratakv_list *list, const stratakv_position *position, const void *value, size_t value_len, char **message);
stratakv_status stratakv_list_replace(const stratakv_list *list, const stratakv_position *position, const void *value, size_t value_len, char **message);
stratakv_status stratakv_list_erase(const stratakv_list *list, const stratakv_position *position, char **message);
/* Walks over the elements, from the back if `reverse` is not 0. */
stratakv_status stratakv_list_elements(const stratakv_list *list, int reverse, stratakv_elements **elements, char **message);
/* The next element; STRATAKV_ABSENT at the end. The value belongs to the walk until the next call; the position, if one is asked for (it may be NULL), to the caller. */
stratakv_status stratakv_elements_next(stratakv_elements *elements, stratakv_record *value, stratakv_position **position, char **message);
void stratakv_elements_free(stratakv_elements *elements);

/* --- Batches and transactions ------------------------------------------------------------------------------------------- */

stratakv_batch *stratakv_batch_new(void);
void stratakv_batch_free(stratakv_batch *batch);
/* Number of changes; 0 for NULL. */
size_t stratakv_batch_count(const stratakv_batch *batch);
/* Bad keys and values are told by stratakv_write. `options` may be NULL. */
stratakv_status stratakv_batch_put(stratakv_batch *batch, const stratakv_collection *collection, const void *key, size_t key_len, const void *value, size_t value_len, const stratakv_put_options *options, char **message);
/* `expect` is a stratakv_expect. */
stratakv_status stratakv_batch_delete(stratakv_batch *batch, const stratakv_collection *collection, const void *key, size_t key_len, uint32_t expect, uint64_t expect_version, char **message);
/* Sets and removes the records of a page (stratakv_entry), all of them or, with STRATAKV_ERROR_USAGE, none. */
stratakv_status stratakv_batch_page(stratakv_batch *batch, const stratakv_collection *collection, const void *page, size_t len, char **message);
stratakv_status stratakv_batch_push(stratakv_batch *batch, const stratakv_list *list, int end, const void *value, size_t value_len, char **message);
/* Makes all changes as one, and empties the batch whatever it returns. STRATAKV_UNMET, and nothing is done, if a condition does not hold. `version` may be NULL. */
stratakv_status stratakv_write(stratakv_store *store, stratakv_batch *batch, uint64_t *version, char **message);

/* Begins a transaction: reads and writes that take effect as one. It holds no lock. */
stratakv_status stratakv_transaction_new(stratakv_store *store, stratakv_transaction **transaction, char **message);
stratakv_status stratakv_transaction_get(stratakv_transaction *transaction, const stratakv_collection *collection, const void *key, size_t key_len, stratakv_record *record, char **message);
/* STRATAKV_UNMET if the condition of `options` (which may be NULL) does not hold. */
stratakv_status stratakv_transaction_put(stratakv_transaction *transaction, const stratakv_collection *collection, const void *key, size_t key_len, const void *value, size_t value_len, const stratakv_put_options *options, char **message);
stratakv_status stratakv_transaction_delete(stratakv_transaction *transaction, const stratakv_collection *collection, const void *key, size_t key_len, char **message);
stratakv_status stratakv_transaction_push(stratakv_transaction *transaction, const stratakv_list *list, int end, const void *value, size_t value_len, char **message);
stratakv_status stratakv_transaction_pop(stratakv_transaction *transaction, const stratakv_list *list, int end, stratakv_record *value, char **message);
stratakv_status stratakv_transaction_peek(stratakv_transaction *transaction, const stratakv_list *list, int end, stratakv_record *value, char **message);
/* Commits and frees it, whatever it returns. STRATAKV_UNMET: what it read has been changed since; nothing was done, begin again. `version` may be NULL. */
stratakv_status stratakv_transaction_commit(stratakv_transaction *transaction, uint64_t *version, char **message);
/* Gives it up: nothing was done. */
void stratakv_transaction_free(stratakv_transaction *transaction);

#ifdef __cplusplus
}
#endif

#endif
