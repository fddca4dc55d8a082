/* Everything that stratakv.h declares, done once and looked at; run with a directory that does not exist yet and the name of an engine. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include "stratakv.h"

static int failures;

#define CHECK(what)                                                                       \
    do {                                                                                  \
        if (!(what)) {                                                                    \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #what);      \
            failures++;                                                                   \
        }                                                                                 \
    } while (0)

/* That a call comes to a status, with a message if it is an error and none otherwise. */
#define COMES_TO(status, call)                                                            \
    do {                                                                                  \
        char *message = (char *)1;                                                        \
        int came_to = (call);                                                             \
        int is_right = came_to == (status) && (came_to >= STRATAKV_ERROR) == (message != NULL); \
        if (!is_right) {                                                                  \
            fprintf(stderr, "%s:%d: %s came to %s: %s\n", __FILE__, __LINE__, #call,      \
                    stratakv_status_name(came_to), message ? message : "(no message)");   \
            failures++;                                                                   \
        }                                                                                 \
        stratakv_message_free(message);                                                   \
    } while (0)

#define OK(call) COMES_TO(STRATAKV_OK, call)
#define ABSENT(call) COMES_TO(STRATAKV_ABSENT, call)

static int is_value(stratakv_record *record, const char *text) {
    int is_right = record->value != NULL && record->value_len == strlen(text) && memcmp(record->value, text, record->value_len) == 0;
    stratakv_record_free(record);
    return is_right && record->value == NULL;
}

static void records(stratakv_store *store) {
    const stratakv_collection *all = stratakv_default(store);
    stratakv_record record, several[3];
    uint64_t version = 0, newer = 0, number = 0;

    OK(stratakv_put(all, "ada", 3, "countess", 8, NULL, &version, &message));
    CHECK(version > 0);
    OK(stratakv_get(all, "ada", 3, &record, &message));
    CHECK(record.version == version && record.flags == 0 && record.expiry_ms == 0);
    CHECK(is_value(&record, "countess"));
    ABSENT(stratakv_get(all, "bob", 3, &record, &message));
    CHECK(record.value == NULL && record.owner == NULL);

    /* Bytes are bytes, and an empty value is one. */
    OK(stratakv_put(all, "\0z", 2, NULL, 0, NULL, NULL, &message));
    OK(stratakv_get(all, "\0z", 2, &record, &message));
    CHECK(record.value != NULL && record.value_len == 0);
    stratakv_record_free(&record);

    stratakv_put_options options = {.flags = 7, .expect = STRATAKV_EXPECT_VERSION, .expect_version = version + 1};
    COMES_TO(STRATAKV_UNMET, stratakv_put(all, "ada", 3, "x", 1, &options, NULL, &message));
    options.expect_version = version;
    options.expiry_ms = stratakv_wall_ms(store) + 3600000;
    OK(stratakv_put(all, "ada", 3, "x", 1, &options, &newer, &message));
    CHECK(newer > version);
    OK(stratakv_get(all, "ada", 3, &record, &message));
    CHECK(record.flags == 7 && record.expiry_ms == options.expiry_ms && is_value(&record, "x"));
    OK(stratakv_ttl(all, "ada", 3, &number, &message));
    CHECK(number > 3500000 && number <= 3600000);
    OK(stratakv_expire(all, "ada", 3, 0, &message));
    OK(stratakv_ttl(all, "ada", 3, &number, &message));
    CHECK(number == UINT64_MAX);
    ABSENT(stratakv_expire(all, "bob", 3, 0, &message));
    ABSENT(stratakv_ttl(all, "bob", 3, &number, &message));
    OK(stratakv_expire(all, "ada", 3, stratakv_wall_ms(store) - 1, &message));
    ABSENT(stratakv_get(all, "ada", 3, &record, &message));
    options.expect = STRATAKV_EXPECT_PRESENT;
    COMES_TO(STRATAKV_UNMET, stratakv_put(all, "ada", 3, "x", 1, &options, NULL, &message));
    options.expect = STRATAKV_EXPECT_ABSENT;
    options.expiry_ms = 0;
    OK(stratakv_put(all, "ada", 3, "x", 1, &options, NULL, &message));

    OK(stratakv_append(all, "ada", 3, "yz", 2, &message));
    OK(stratakv_prepend(all, "ada", 3, "vw", 2, &message));
    ABSENT(stratakv_append(all, "bob", 3, "yz", 2, &message));
    OK(stratakv_get(all, "ada", 3, &record, &message));
    CHECK(is_value(&record, "vwxyz"));
    OK(stratakv_increment(all, "visits", 6, 41, &number, &message));
    OK(stratakv_increment(all, "visits", 6, 1, &number, &message));
    CHECK(number == 42);
    OK(stratakv_decrement(all, "visits", 6, 50, &number, &message));
    CHECK(number == 0);
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_increment(all, "ada", 3, 1, NULL, &message));

    const void *keys[3] = {"ada", "bob", "visits"};
    size_t lens[3] = {3, 3, 6};
    OK(stratakv_multi_get(all, 3, keys, lens, several, &message));
    CHECK(is_value(&several[0], "vwxyz") && several[1].value == NULL && several[2].value_len >= 1);
    stratakv_record_free(&several[2]);
    OK(stratakv_delete(all, "ada", 3, &message));
    ABSENT(stratakv_delete(all, "ada", 3, &message));
    OK(stratakv_sync(store, &message));
}

static int longer(void *context, const stratakv_record *before, stratakv_replacement *next) {
    char *text = context;
    size_t len = before ? before->value_len : 0;
    if (before) memcpy(text, before->value, len);
    text[len] = '.';
    next->value = text;
    next->value_len = len + 1;
    next->flags = 3;
    return len == 3 ? STRATAKV_REMOVE : STRATAKV_REPLACE;
}

static int nothing(void *context, const stratakv_record *before, stratakv_replacement *next) {
    (void)before, (void)next;
    return *(int *)context;
}

static int counted(void *context, const stratakv_record *before, stratakv_replacement *next) {
    unsigned long long *sum = context;
    *sum = 0;
    if (before) memcpy(sum, before->value, sizeof *sum);
    ++*sum;
    next->value = sum;
    next->value_len = sizeof *sum;
    return STRATAKV_REPLACE;
}

static void *count_up(void *collection) {
    unsigned long long sum;
    for (int i = 0; i < 100; i++) OK(stratakv_fetch_update(collection, "sum", 3, counted, &sum, NULL, &message));
    return NULL;
}

static void updates(stratakv_store *store) {
    const stratakv_collection *all = stratakv_default(store);
    stratakv_record record;
    uint64_t version = 1;
    char text[16];
    int keep = STRATAKV_KEEP, bad = 9;
    for (int i = 0; i < 3; i++) OK(stratakv_fetch_update(all, "dots", 4, longer, text, &version, &message));
    CHECK(version > 0);
    OK(stratakv_get(all, "dots", 4, &record, &message));
    CHECK(record.flags == 3 && is_value(&record, "..."));
    OK(stratakv_fetch_update(all, "dots", 4, nothing, &keep, &version, &message));
    CHECK(version == 0);
    OK(stratakv_fetch_update(all, "dots", 4, longer, text, NULL, &message));
    ABSENT(stratakv_get(all, "dots", 4, &record, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_fetch_update(all, "dots", 4, nothing, &bad, NULL, &message));

    pthread_t threads[4];
    unsigned long long sum = 0;
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, count_up, (void *)all);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    OK(stratakv_get(all, "sum", 3, &record, &message));
    if (record.value_len == sizeof sum) memcpy(&sum, record.value, sizeof sum);
    stratakv_record_free(&record);
    CHECK(sum == 400);
}

/* The keys of a scan, one behind the other. */
static const char *keys_of(const stratakv_collection *collection, const stratakv_scan_options *options, const stratakv_snapshot *snapshot) {
    static char keys[64];
    stratakv_scan *scan = NULL;
    const uint8_t *key;
    size_t key_len, len = 0;
    stratakv_record record;
    OK(stratakv_scan_new(collection, options, snapshot, &scan, &message));
    while (stratakv_scan_next(scan, &key, &key_len, &record, NULL) == STRATAKV_OK) {
        CHECK(options && options->keys_only ? record.value_len == 0 : record.value_len == 1);
        if (len + key_len < sizeof keys) memcpy(keys + len, key, key_len), len += key_len;
    }
    CHECK(key == NULL && key_len == 0);
    stratakv_scan_free(scan);
    keys[len] = 0;
    return keys;
}

static void collections(stratakv_store *store) {
    stratakv_collection *letters = NULL, *again = NULL, *turned = NULL;
    stratakv_snapshot *snapshot = NULL;
    stratakv_record record;
    uint64_t number = 0, expiry = 0;
    int is_list = 7;
    char *json = NULL;

    ABSENT(stratakv_collection_existing(store, "letters", &letters, &message));
    CHECK(letters == NULL);
    OK(stratakv_collection_open(store, "letters", &letters, &message));
    OK(stratakv_collection_existing(store, "letters", &again, &message));
    for (const char *key = "abcdef"; *key; key++) OK(stratakv_put(letters, key, 1, key, 1, NULL, NULL, &message));
    OK(stratakv_put(letters, "cc", 2, "c", 1, NULL, NULL, &message));
    OK(stratakv_count(again, &number, &message));
    CHECK(number == 7);
    CHECK(strcmp(keys_of(letters, NULL, NULL), "abcccdef") == 0);
    stratakv_scan_options options = {.from = "b", .from_len = 1, .to = "e", .to_len = 1};
    CHECK(strcmp(keys_of(letters, &options, NULL), "bcccd") == 0);
    options.from_excluded = options.to_included = options.reverse = 1;
    CHECK(strcmp(keys_of(letters, &options, NULL), "edccc") == 0);
    stratakv_scan_options prefix = {.prefix = "c", .prefix_len = 1, .keys_only = 1};
    CHECK(strcmp(keys_of(letters, &prefix, NULL), "ccc") == 0);
    prefix.from = "a", prefix.from_len = 1;
    stratakv_scan *scan = (stratakv_scan *)1;
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_scan_new(letters, &prefix, NULL, &scan, &message));
    CHECK(scan == NULL);

    int has_snapshots = strcmp(stratakv_engine(store), "slab") != 0;
    COMES_TO(has_snapshots ? STRATAKV_OK : STRATAKV_ERROR_UNSUPPORTED, stratakv_snapshot_new(store, &snapshot, &message));
    OK(stratakv_delete_range(letters, "b", 1, "d", 1, &number, &message));
    CHECK(number == 3);
    OK(stratakv_delete_prefix(letters, "f", 1, &number, &message));
    CHECK(number == 1);
    CHECK(strcmp(keys_of(letters, NULL, NULL), "ade") == 0);
    if (snapshot) {
        CHECK(strcmp(keys_of(letters, NULL, snapshot), "abcccdef") == 0);
        OK(stratakv_snapshot_get(snapshot, letters, "b", 1, &record, &message));
        CHECK(is_value(&record, "b"));
        ABSENT(stratakv_snapshot_get(snapshot, letters, "q", 1, &record, &message));
    }
    stratakv_snapshot_free(snapshot);

    /* In an order of one's own: from z to a. */
    OK(stratakv_collection_in_order(store, "turned", "turned", &turned, &message));
    for (const char *key = "xzy"; *key; key++) OK(stratakv_put(turned, key, 1, key, 1, NULL, NULL, &message));
    CHECK(strcmp(keys_of(turned, NULL, NULL), "zyx") == 0);
    stratakv_scan_options sorted = {.prefix = "\x85", .prefix_len = 1, .is_sort_prefix = 1};
    CHECK(strcmp(keys_of(turned, &sorted, NULL), "z") == 0);

    OK(stratakv_collection_names(store, &json, &message));
    CHECK(strcmp(json, "[\"letters\",\"turned\"]") == 0);
    stratakv_message_free(json);
    OK(stratakv_collection_is_list(store, "letters", &is_list, &message));
    CHECK(is_list == 0);
    OK(stratakv_collection_set_expiry(store, "letters", stratakv_wall_ms(store) + 3600000, &message));
    OK(stratakv_collection_expiry(store, "letters", &expiry, &message));
    CHECK(expiry > stratakv_wall_ms(store));
    ABSENT(stratakv_collection_set_expiry(store, "nobody", 0, &message));
    ABSENT(stratakv_collection_expiry(store, "nobody", &expiry, &message));
    OK(stratakv_collection_drop(store, "letters", &message));
    ABSENT(stratakv_collection_drop(store, "letters", &message));
    stratakv_collection_free(letters);
    stratakv_collection_free(again);
    stratakv_collection_free(turned);
}

/* Adds an entry to a page, whose length is a multiple of 8. */
static size_t entry(uint8_t *page, size_t at, const char *key, const char *value, uint32_t flags) {
    stratakv_entry made = {.value_len = value ? strlen(value) : STRATAKV_DELETED, .key_len = (uint32_t)strlen(key), .flags = flags};
    memset(page + at, 0, 128);
    memcpy(page + at, &made, sizeof made);
    memcpy(page + at + sizeof made, key, made.key_len);
    if (value) memcpy(page + at + sizeof made + made.key_len, value, made.value_len);
    return (at + sizeof made + made.key_len + (value ? made.value_len : 0) + 7) / 8 * 8;
}

static void pages(stratakv_store *store) {
    stratakv_collection *paged = NULL;
    stratakv_batch *batch = stratakv_batch_new();
    stratakv_record record;
    stratakv_scan *scan = NULL;
    uint8_t page[4096], room[4];
    const uint8_t *key;
    size_t len = 0, count = 9, key_len;

    OK(stratakv_collection_open(store, "paged", &paged, &message));
    OK(stratakv_put(paged, "gone", 4, "x", 1, NULL, NULL, &message));
    const char *letters = "abcdefghij";
    for (int i = 0; i < 10; i++) {
        char name[2] = {letters[i], 0}, value[64] = {0};
        memset(value, letters[i], (size_t)i * 6);
        len = entry(page, len, name, value, (uint32_t)i);
    }
    len = entry(page, len, "gone", NULL, 0);
    OK(stratakv_batch_page(batch, paged, page, len, &message));
    CHECK(stratakv_batch_count(batch) == 11);
    /* Cut off, it adds nothing. */
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_batch_page(batch, paged, page, len - 1, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_batch_page(batch, NULL, page, len, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_batch_page(batch, paged, NULL, len, &message));
    CHECK(stratakv_batch_count(batch) == 11);
    OK(stratakv_write(store, batch, NULL, &message));
    stratakv_batch_free(batch);

    /* Some by pages, one by itself, one that needs more room than there is. */
    OK(stratakv_scan_new(paged, NULL, NULL, &scan, &message));
    OK(stratakv_scan_page(scan, page, 39, &len, &count, &message));
    CHECK(count == 0 && len == 40);
    OK(stratakv_scan_page(scan, page, 100, &len, &count, &message));
    CHECK(count == 2 && len == 80);
    OK(stratakv_scan_next(scan, &key, &key_len, &record, &message));
    CHECK(key_len == 1 && *key == 'c' && record.value_len == 12);
    size_t entries = 0;
    while (stratakv_scan_page(scan, page, 200, &len, &count, NULL) == STRATAKV_OK) {
        CHECK(count > 0 && len <= 200);
        size_t at = 0;
        for (size_t i = 0; i < count; i++) {
            stratakv_entry read;
            memcpy(&read, page + at, sizeof read);
            char wanted = (char)('d' + entries);
            const uint8_t *bytes = page + at + sizeof read;
            CHECK(read.key_len == 1 && bytes[0] == wanted && read.flags == 3 + entries && read.version > 0 && read.expiry_ms == 0);
            CHECK(read.value_len == 6 * (3 + entries) && bytes[1] == wanted && bytes[read.value_len] == wanted);
            at = (at + sizeof read + read.key_len + read.value_len + 7) / 8 * 8;
            entries++;
        }
        CHECK(at == len);
    }
    CHECK(entries == 7);
    ABSENT(stratakv_scan_page(scan, page, sizeof page, &len, &count, &message));
    CHECK(len == 0 && count == 0);
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_scan_page(scan, NULL, 8, &len, &count, &message));
    stratakv_scan_free(scan);

    /* All in one page, a page and the rest, none, and one that needs more room. */
    static uint8_t all[4096];
    OK(stratakv_scan_begin(paged, NULL, NULL, all, sizeof all, &len, &count, &scan, &message));
    CHECK(count == 10 && scan == NULL);
    OK(stratakv_scan_begin(paged, NULL, NULL, all, len - 1, &len, &count, &scan, &message));
    CHECK(count == 9 && scan != NULL);
    OK(stratakv_scan_page(scan, all, sizeof all, &len, &count, &message));
    CHECK(count == 1);
    ABSENT(stratakv_scan_page(scan, all, sizeof all, &len, &count, &message));
    stratakv_scan_free(scan);
    stratakv_scan_options none = {.from = "x", .from_len = 1};
    ABSENT(stratakv_scan_begin(paged, &none, NULL, all, sizeof all, &len, &count, &scan, &message));
    CHECK(count == 0 && scan == NULL);
    OK(stratakv_scan_begin(paged, NULL, NULL, all, 39, &len, &count, &scan, &message));
    CHECK(count == 0 && len == 40 && scan != NULL);
    stratakv_scan_free(scan);
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_scan_begin(NULL, NULL, NULL, all, sizeof all, &len, &count, &scan, &message));
    CHECK(scan == NULL);

    /* A value in the caller's room; and one for which that is too small. */
    OK(stratakv_put(paged, "b", 1, "four", 4, NULL, NULL, &message));
    OK(stratakv_get_into(paged, "b", 1, room, sizeof room, &record, &message));
    CHECK(record.value == room && record.owner == NULL && record.version > 0);
    CHECK(is_value(&record, "four"));
    OK(stratakv_get_into(paged, "c", 1, room, sizeof room, &record, &message));
    CHECK(record.value != room && record.owner != NULL);
    CHECK(is_value(&record, "cccccccccccc"));
    OK(stratakv_get_into(paged, "a", 1, room, sizeof room, &record, &message));
    CHECK(record.value != NULL && record.value_len == 0);
    stratakv_record_free(&record);
    ABSENT(stratakv_get_into(paged, "gone", 4, room, sizeof room, &record, &message));
    CHECK(record.value == NULL);
    OK(stratakv_get_into(paged, "b", 1, NULL, 0, &record, &message));
    CHECK(is_value(&record, "four"));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_get_into(paged, "b", 1, NULL, 5, &record, &message));
    stratakv_collection_free(paged);
    OK(stratakv_collection_drop(store, "paged", &message));
}

static void lists(stratakv_store *store) {
    stratakv_list *tasks = NULL, *urgent = NULL;
    stratakv_position *position = NULL;
    stratakv_elements *elements = NULL;
    stratakv_record value, several[4];
    uint64_t number = 0;
    size_t count = 9;
    int is_list = 0;
    char order[8] = "";

    ABSENT(stratakv_list_existing(store, "tasks", &tasks, &message));
    OK(stratakv_list_open(store, "tasks", &tasks, &message));
    OK(stratakv_collection_is_list(store, "tasks", &is_list, &message));
    CHECK(is_list == 1);
    OK(stratakv_list_open(store, "urgent", &urgent, &message));
    const void *values[3] = {"b", "c", "d"};
    size_t lens[3] = {1, 1, 1};
    OK(stratakv_list_push_all(tasks, STRATAKV_BACK, 3, values, lens, &message));
    OK(stratakv_list_push(tasks, STRATAKV_FRONT, "a", 1, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_list_push(tasks, 2, "a", 1, &message));
    OK(stratakv_list_insert(tasks, -2, "x", 1, &message)); /* abcxd */
    ABSENT(stratakv_list_insert(tasks, 99, "x", 1, &message));
    OK(stratakv_list_position(tasks, 3, &position, &message));
    OK(stratakv_list_at(tasks, position, &value, &message));
    CHECK(is_value(&value, "x"));
    OK(stratakv_list_insert_before(tasks, position, "v", 1, &message));
    OK(stratakv_list_insert_after(tasks, position, "z", 1, &message)); /* abcvxzd */
    OK(stratakv_list_replace(tasks, position, "y", 1, &message));      /* abcvyzd */
    ABSENT(stratakv_list_erase(tasks, position, &message));
    ABSENT(stratakv_list_at(tasks, position, &value, &message));
    stratakv_position_free(position);
    OK(stratakv_list_count(tasks, &number, &message));
    CHECK(number == 7);
    OK(stratakv_list_get(tasks, -2, &value, &message));
    CHECK(is_value(&value, "z"));
    ABSENT(stratakv_list_get(tasks, 7, &value, &message));

    OK(stratakv_list_elements(tasks, 1, &elements, &message));
    while (stratakv_elements_next(elements, &value, &position, NULL) == STRATAKV_OK) {
        strncat(order, (const char *)value.value, 1);
        if (*value.value == 'v') OK(stratakv_list_erase(tasks, position, &message));
        stratakv_position_free(position);
    }
    CHECK(position == NULL && value.value == NULL);
    CHECK(strcmp(order, "dzyvcba") == 0);
    stratakv_elements_free(elements);

    OK(stratakv_list_pop(tasks, STRATAKV_FRONT, &value, &message));
    CHECK(is_value(&value, "a"));
    OK(stratakv_list_move(tasks, STRATAKV_BACK, urgent, STRATAKV_FRONT, &value, &message));
    CHECK(is_value(&value, "d"));
    OK(stratakv_list_pop_many(tasks, STRATAKV_BACK, 2, several, &count, &message));
    CHECK(count == 2 && is_value(&several[0], "z") && is_value(&several[1], "y"));
    OK(stratakv_list_pop_many(tasks, STRATAKV_BACK, 4, several, &count, &message));
    CHECK(count == 2 && several[2].value == NULL);
    for (size_t i = 0; i < count; i++) stratakv_record_free(&several[i]);
    ABSENT(stratakv_list_pop(tasks, STRATAKV_BACK, &value, &message));
    ABSENT(stratakv_list_move(tasks, STRATAKV_BACK, urgent, STRATAKV_BACK, NULL, &message));
    stratakv_list_free(tasks);
    stratakv_list_free(urgent);
}

static void as_one(stratakv_store *store) {
    const stratakv_collection *all = stratakv_default(store);
    stratakv_list *log = NULL;
    stratakv_record record;
    uint64_t version = 0, number = 0;
    OK(stratakv_list_open(store, "log", &log, &message));

    stratakv_batch *batch = stratakv_batch_new();
    OK(stratakv_batch_put(batch, all, "from", 4, "90", 2, NULL, &message));
    OK(stratakv_batch_put(batch, all, "to", 2, "110", 3, NULL, &message));
    OK(stratakv_batch_delete(batch, all, "transfer", 8, STRATAKV_EXPECT_ANY, 0, &message));
    OK(stratakv_batch_push(batch, log, STRATAKV_BACK, "10", 2, &message));
    CHECK(stratakv_batch_count(batch) == 4);
    OK(stratakv_write(store, batch, &version, &message));
    CHECK(version > 0 && stratakv_batch_count(batch) == 0);
    stratakv_put_options absent = {.expect = STRATAKV_EXPECT_ABSENT};
    OK(stratakv_batch_put(batch, all, "from", 4, "0", 1, NULL, &message));
    OK(stratakv_batch_put(batch, all, "to", 2, "200", 3, &absent, &message));
    COMES_TO(STRATAKV_UNMET, stratakv_write(store, batch, NULL, &message));
    OK(stratakv_batch_put(batch, all, "", 0, "0", 1, NULL, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_write(store, batch, NULL, &message));
    stratakv_batch_free(batch);
    OK(stratakv_get(all, "from", 4, &record, &message));
    CHECK(is_value(&record, "90"));

    stratakv_transaction *slow = NULL, *fast = NULL;
    OK(stratakv_transaction_new(store, &slow, &message));
    OK(stratakv_transaction_new(store, &fast, &message));
    OK(stratakv_transaction_get(slow, all, "from", 4, &record, &message));
    CHECK(is_value(&record, "90"));
    OK(stratakv_transaction_put(slow, all, "from", 4, "80", 2, NULL, &message));
    OK(stratakv_transaction_get(slow, all, "from", 4, &record, &message));
    CHECK(is_value(&record, "80"));
    COMES_TO(STRATAKV_UNMET, stratakv_transaction_put(fast, all, "to", 2, "1", 1, &absent, &message));
    OK(stratakv_transaction_delete(fast, all, "from", 4, &message));
    ABSENT(stratakv_transaction_get(fast, all, "from", 4, &record, &message));
    OK(stratakv_transaction_push(fast, log, STRATAKV_BACK, "11", 2, &message));
    OK(stratakv_transaction_pop(fast, log, STRATAKV_FRONT, &record, &message));
    CHECK(is_value(&record, "10"));
    OK(stratakv_transaction_peek(fast, log, STRATAKV_BACK, &record, &message));
    CHECK(is_value(&record, "11"));
    OK(stratakv_transaction_commit(fast, &version, &message));
    COMES_TO(STRATAKV_UNMET, stratakv_transaction_commit(slow, NULL, &message));
    OK(stratakv_transaction_new(store, &slow, &message));
    OK(stratakv_transaction_put(slow, all, "never", 5, "x", 1, NULL, &message));
    stratakv_transaction_free(slow);
    ABSENT(stratakv_get(all, "never", 5, &record, &message));
    OK(stratakv_list_count(log, &number, &message));
    CHECK(number == 1);
    stratakv_list_free(log);
}

/* NULL, too long, too late: told, never a crash. */
static void bad_input(stratakv_store *store) {
    const stratakv_collection *all = stratakv_default(store);
    stratakv_record record, several[3];
    uint64_t number;
    char long_key[70000];
    memset(long_key, 'k', sizeof long_key);
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_get(NULL, "a", 1, &record, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_get(all, NULL, 1, &record, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_get(all, "a", 1, NULL, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_get(all, "", 0, &record, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_get(all, long_key, sizeof long_key, &record, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_get(all, "a", SIZE_MAX, &record, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_put(all, "a", 1, NULL, 5, NULL, NULL, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_multi_get(all, 3, NULL, NULL, several, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_multi_get(all, SIZE_MAX, NULL, NULL, several, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_count(all, NULL, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_count(NULL, &number, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_scan_next(NULL, NULL, NULL, NULL, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_fetch_update(all, "a", 1, NULL, NULL, NULL, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_write(store, NULL, NULL, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_transaction_commit(NULL, NULL, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_list_pop(NULL, STRATAKV_BACK, &record, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_collection_drop(store, NULL, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_collection_drop(store, "\xff", &message));
    stratakv_put_options options = {.expect = 99};
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_put(all, "a", 1, "b", 1, &options, NULL, &message));
    stratakv_list *list = NULL;
    OK(stratakv_list_open(store, "a list", &list, &message));
    stratakv_list_free(list);
    stratakv_collection *collection = (stratakv_collection *)1;
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_collection_open(store, "a list", &collection, &message));
    CHECK(collection == NULL);
    /* Without a message, and nothing that is freed. */
    CHECK(stratakv_get(NULL, "a", 1, &record, NULL) == STRATAKV_ERROR_USAGE);
    stratakv_record_free(NULL), stratakv_message_free(NULL), stratakv_scan_free(NULL), stratakv_options_free(NULL);
    stratakv_collection_free(NULL), stratakv_list_free(NULL), stratakv_position_free(NULL), stratakv_elements_free(NULL);
    stratakv_batch_free(NULL), stratakv_transaction_free(NULL), stratakv_snapshot_free(NULL);
    CHECK(stratakv_default(NULL) == NULL && stratakv_batch_count(NULL) == 0 && stratakv_wall_ms(NULL) == 0);
    CHECK(strcmp(stratakv_engine(NULL), "?") == 0 && strcmp(stratakv_status_name(3), "?") == 0);
    CHECK(strcmp(stratakv_status_name(STRATAKV_ERROR_CORRUPT), "corrupt") == 0 && strchr(stratakv_version(), '.'));
    OK(stratakv_close(NULL, &message));
}

/* From z to a. */
static size_t turned_key(void *context, const uint8_t *key, size_t key_len, uint8_t *sort_key, size_t room) {
    atomic_fetch_add((atomic_int *)context, 1);
    for (size_t i = 0; i < key_len && i < room; i++) sort_key[i] = 255 - key[i];
    return key_len;
}

static stratakv_options *options_for(const char *engine, atomic_int *sorted) {
    stratakv_options *options = stratakv_options_new();
    OK(stratakv_options_set(options, "engine", engine, &message));
    OK(stratakv_options_set(options, "durability", "process_crash", &message));
    OK(stratakv_options_set(options, "memory_bytes", "64MiB", &message));
    if (strcmp(engine, "slab") != 0) OK(stratakv_options_set(options, "region_bytes", "32MiB", &message));
    OK(stratakv_options_order(options, "turned", turned_key, sorted, &message));
    return options;
}

static void opening(const char *path, const char *engine) {
    atomic_int sorted = 0;
    stratakv_options *options = options_for(engine, &sorted);
    stratakv_store *store = (stratakv_store *)1, *second = NULL;
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_options_set(options, "colour", "red", &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_options_set(options, "shards", "many", &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_options_set(options, "engine", "steam", &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_options_order(options, "none", NULL, NULL, &message));
    OK(stratakv_options_set(options, "create", "false", &message));
    COMES_TO(STRATAKV_ERROR_NOT_FOUND, stratakv_open(path, options, &store, &message));
    CHECK(store == NULL);
    OK(stratakv_options_set(options, "create", "true", &message));
    OK(stratakv_open(path, options, &store, &message));
    COMES_TO(STRATAKV_ERROR_LOCKED, stratakv_open(path, options, &second, &message));
    CHECK(second == NULL && strcmp(stratakv_engine(store), engine) == 0);

    records(store);
    updates(store);
    collections(store);
    pages(store);
    lists(store);
    as_one(store);
    bad_input(store);
    CHECK(atomic_load(&sorted) > 0);

    char *json = NULL, backup[4096], restored[4096];
    OK(stratakv_stats(store, &json, &message));
    CHECK(json[0] == '{' && strstr(json, "\":"));
    stratakv_message_free(json);
    uint64_t written = 0, read = 0, checked = 0;
    snprintf(backup, sizeof backup, "%s.backup", path);
    snprintf(restored, sizeof restored, "%s.restored", path);
    OK(stratakv_backup(store, backup, &written, &message));
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_backup(store, backup, NULL, &message));

    /* What outlives its store is memory still, and says so. */
    stratakv_collection *left = NULL;
    stratakv_list *list = NULL;
    stratakv_elements *walk = NULL;
    stratakv_scan *scan = NULL;
    stratakv_record record;
    const uint8_t *key;
    size_t key_len;
    OK(stratakv_collection_open(store, "left", &left, &message));
    OK(stratakv_scan_new(left, NULL, NULL, &scan, &message));
    OK(stratakv_list_open(store, "left list", &list, &message));
    OK(stratakv_list_elements(list, 0, &walk, &message));
    OK(stratakv_close(store, &message));
    COMES_TO(STRATAKV_ERROR_CLOSED, stratakv_get(left, "a", 1, &record, &message));
    COMES_TO(STRATAKV_ERROR_CLOSED, stratakv_scan_next(scan, &key, &key_len, &record, &message));
    /* What is given is all zero then too, so that freeing it twice does nothing. */
    stratakv_record value;
    stratakv_position *position = (stratakv_position *)1;
    memset(&value, 1, sizeof value);
    COMES_TO(STRATAKV_ERROR_CLOSED, stratakv_elements_next(walk, &value, &position, &message));
    CHECK(position == NULL && value.value == NULL && value.owner == NULL);
    memset(&value, 1, sizeof value);
    COMES_TO(STRATAKV_ERROR_CLOSED, stratakv_list_move(list, STRATAKV_BACK, list, STRATAKV_BACK, &value, &message));
    CHECK(value.value == NULL && value.owner == NULL);
    json = (char *)1;
    COMES_TO(STRATAKV_ERROR_USAGE, stratakv_stats(NULL, &json, &message));
    CHECK(json == NULL);
    stratakv_elements_free(walk);
    stratakv_list_free(list);
    stratakv_scan_free(scan);
    stratakv_collection_free(left);

    OK(stratakv_check(path, &checked, &message));
    CHECK(checked > 0 && written > 0);
    OK(stratakv_restore(backup, restored, options, &read, &message));
    CHECK(read == written);
    OK(stratakv_open(restored, options, &store, &message));
    OK(stratakv_get(stratakv_default(store), "to", 2, &record, &message));
    CHECK(is_value(&record, "110"));
    OK(stratakv_close(store, &message));
    stratakv_options_free(options);
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: %s DIRECTORY ENGINE\n", arguments[0]);
        return 2;
    }
    opening(arguments[1], arguments[2]);
    if (failures == 0) printf("all holds\n");
    return failures != 0;
}
