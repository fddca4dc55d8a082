/* Counts what memcpy and memmove copy, in a file that others read meanwhile: bytes, calls, and bytes of calls of 512 bytes and more. To be preloaded; COPIES names the file, of a page. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic uint64_t *counters;
static void *(*copy)(void *, const void *, size_t), *(*move)(void *, const void *, size_t);

__attribute__((constructor)) static void begin(void) {
    copy = dlsym(RTLD_NEXT, "memcpy");
    move = dlsym(RTLD_NEXT, "memmove");
    const char *path = getenv("COPIES");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at != MAP_FAILED) counters = at;
}

static void count(size_t bytes) {
    if (!counters) return;
    atomic_fetch_add_explicit(&counters[0], bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&counters[1], 1, memory_order_relaxed);
    if (bytes >= 512) atomic_fetch_add_explicit(&counters[2], bytes, memory_order_relaxed);
}

/* Before the constructor there is nobody to ask. */
static void *by_byte(char *to, const char *from, size_t bytes) {
    if (to < from)
        for (size_t i = 0; i < bytes; i++) ((volatile char *)to)[i] = from[i];
    else
        for (size_t i = bytes; i-- > 0;) ((volatile char *)to)[i] = from[i];
    return to;
}

void *memcpy(void *to, const void *from, size_t bytes) {
    count(bytes);
    return copy ? copy(to, from, bytes) : by_byte(to, from, bytes);
}

void *memmove(void *to, const void *from, size_t bytes) {
    count(bytes);
    return move ? move(to, from, bytes) : by_byte(to, from, bytes);
}
