/* A child of fork uses its parent's store: every function answers STRATAKV_ERROR_CLOSED and says why, handles can be freed, and the parent goes on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stratakv.h"

#define DEMAND(condition)                                                        \
    do {                                                                         \
        if (!(condition)) {                                                      \
            fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition); \
            _exit(1);                                                            \
        }                                                                        \
    } while (0)

static void check_refused(stratakv_status status, char *message) {
    DEMAND(status == STRATAKV_ERROR_CLOSED);
    DEMAND(message != NULL && strstr(message, "forked") != NULL);
    stratakv_message_free(message);
}

/* In two steps: the arguments of one call are evaluated in any order, so `message` might be read before it is set. */
#define IS_REFUSED(call)                        \
    do {                                        \
        message = NULL;                         \
        stratakv_status refused_with = (call);  \
        check_refused(refused_with, message);   \
    } while (0)

int main(int count, char **arguments) {
    DEMAND(count == 3);
    stratakv_options *options = stratakv_options_new();
    char *message = NULL;
    DEMAND(stratakv_options_set(options, "engine", arguments[2], &message) == STRATAKV_OK);
    DEMAND(stratakv_options_set(options, "memory_bytes", "64MiB", &message) == STRATAKV_OK);
    if (strcmp(arguments[2], "slab") != 0) {
        DEMAND(stratakv_options_set(options, "region_bytes", "32MiB", &message) == STRATAKV_OK);
        DEMAND(stratakv_options_set(options, "durability", "process_crash", &message) == STRATAKV_OK);
    }
    stratakv_store *store = NULL;
    DEMAND(stratakv_open(arguments[1], options, &store, &message) == STRATAKV_OK);
    stratakv_collection *named = NULL;
    stratakv_list *list = NULL;
    DEMAND(stratakv_collection_open(store, "named", &named, &message) == STRATAKV_OK);
    DEMAND(stratakv_list_open(store, "list", &list, &message) == STRATAKV_OK);
    DEMAND(stratakv_put(stratakv_default(store), "k", 1, "v", 1, NULL, NULL, &message) == STRATAKV_OK);
    DEMAND(stratakv_list_push(list, STRATAKV_BACK, "e", 1, &message) == STRATAKV_OK);
    pid_t child = fork();
    DEMAND(child >= 0);
    if (child == 0) {
        alarm(60);
        stratakv_record record = {0};
        uint64_t number = 0;
        IS_REFUSED(stratakv_put(stratakv_default(store), "k", 1, "w", 1, NULL, NULL, &message));
        IS_REFUSED(stratakv_get(named, "k", 1, &record, &message));
        IS_REFUSED(stratakv_delete(named, "k", 1, &message));
        IS_REFUSED(stratakv_list_push(list, STRATAKV_BACK, "e", 1, &message));
        IS_REFUSED(stratakv_list_count(list, &number, &message));
        stratakv_collection *other = NULL;
        IS_REFUSED(stratakv_collection_open(store, "other", &other, &message));
        IS_REFUSED(stratakv_sync(store, &message));
        stratakv_list_free(list);
        stratakv_collection_free(named);
        IS_REFUSED(stratakv_close(store, &message));
        stratakv_options_free(options);
        exit(0);
    }
    int status = 0;
    DEMAND(waitpid(child, &status, 0) == child);
    DEMAND(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    DEMAND(stratakv_put(stratakv_default(store), "k", 1, "x", 1, NULL, NULL, &message) == STRATAKV_OK);
    stratakv_list_free(list);
    stratakv_collection_free(named);
    DEMAND(stratakv_close(store, &message) == STRATAKV_OK);
    DEMAND(stratakv_open(arguments[1], options, &store, &message) == STRATAKV_OK);
    stratakv_record record = {0};
    DEMAND(stratakv_get(stratakv_default(store), "k", 1, &record, &message) == STRATAKV_OK);
    DEMAND(record.value_len == 1 && memcmp(record.value, "x", 1) == 0);
    stratakv_record_free(&record);
    DEMAND(stratakv_close(store, &message) == STRATAKV_OK);
    stratakv_options_free(options);
    puts("all holds");
    return 0;
}
