/* A plugin of QEMU's emulator (API version 1): counts what a machine with one processor executes,
 * in a file that the lab maps too. Compiled by the lab; the API is declared here, as Debian packages
 * no header for it.
 *
 * Instructions are counted by translated blocks, when one begins: a block that a fault ends early is
 * counted whole.
 *
 * A *look* is what user space executes between two `pause` instructions, if the kernel executes
 * nothing meanwhile. A thread that polls executes one `pause` a look.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*translated)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*executed)(unsigned int, void *);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, translated);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, executed, int, void *);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *, int, void *, uint64_t);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);

enum { NO_REGISTERS = 0, ADD = 0, LOOKS = 4096 };

/* Read by the lab, in this order. */
struct counts {
    uint64_t user;     /* instructions */
    uint64_t kernel;   /* instructions */
    uint64_t syscalls; /* `syscall` instructions */
    uint64_t pauses;
    /* How many looks had so many instructions; longer ones are not counted. */
    uint64_t looks[LOOKS];
};

EXPORT int qemu_plugin_version = 1;
static struct counts *counts;
static uint64_t last_user, last_kernel;

static void paused(unsigned int vcpu, void *data)
{
    (void)vcpu;
    (void)data;
    uint64_t user = counts->user - last_user;
    if (counts->kernel == last_kernel && user < LOOKS)
        counts->looks[user]++;
    last_user = counts->user;
    last_kernel = counts->kernel;
    counts->pauses++;
}

static bool is(const struct qemu_plugin_insn *insn, uint8_t first, uint8_t second)
{
    const uint8_t *bytes = qemu_plugin_insn_data(insn);
    return qemu_plugin_insn_size(insn) == 2 && bytes[0] == first && bytes[1] == second;
}

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    (void)id;
    size_t insns = qemu_plugin_tb_n_insns(tb);
    bool kernel = qemu_plugin_tb_vaddr(tb) >> 63;
    uint64_t *of = kernel ? &counts->kernel : &counts->user;
    qemu_plugin_register_vcpu_tb_exec_inline(tb, ADD, of, insns);
    for (size_t i = 0; !kernel && i < insns; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        if (is(insn, 0x0f, 0x05))
            qemu_plugin_register_vcpu_insn_exec_inline(insn, ADD, &counts->syscalls, 1);
        if (is(insn, 0xf3, 0x90))
            qemu_plugin_register_vcpu_insn_exec_cb(insn, paused, NO_REGISTERS, NULL);
    }
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
    (void)info;
    const char *name = "counts=";
    if (argc != 1 || strncmp(argv[0], name, strlen(name)) != 0)
        return 1;
    int file = open(argv[0] + strlen(name), O_RDWR);
    if (file < 0)
        return 1;
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (counts == MAP_FAILED)
        return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    return 0;
}
