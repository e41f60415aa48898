/* Memory functions on ranges that begin outside of memory that `fulgurite run` manages, on parts of mappings, and on
 * whole ones. With the argument "run", a neighbour is put in front of the first mapping, else one mapping is halved.
 * With a second one, "raw", all of these are made by `syscall`.
 * After each step all pages leave DRAM, and what they hold is printed: it is the same with `fulgurite run` and without.
 * The pages that a step is about hold their number and the step's. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, NEAR = 16, ALL = 48, BIG = 4096 };
static const size_t HALF = NEAR * PAGE;
static const int RW = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS;

static unsigned char *at, *big, *other;
static sigjmp_buf jump;

static void caught(int signal) {
    (void)signal;
    siglongjmp(jump, 1);
}

/* Pushes all else out of DRAM. */
static void evict(void) {
    for (int page = 0; page < BIG; page++)
        big[(size_t)page * PAGE]++;
}

static void write_all(int step) {
    for (int page = 0; page < ALL; page++)
        if (sigsetjmp(jump, 1) == 0) {
            uint32_t value = (uint32_t)(step << 16 | page);
            memcpy(at + (size_t)page * PAGE + 8, &value, sizeof value);
        }
}

/* Per page: "." what was written in this step, "0" zeros, "-" no access, else the step. */
static void show(const char *name, int step) {
    char line[ALL + 1] = {0};
    evict();
    for (volatile int page = 0; page < ALL; page++) {
        uint32_t value;
        line[page] = '-';
        if (sigsetjmp(jump, 1) == 0) {
            memcpy(&value, at + (size_t)page * PAGE + 8, sizeof value);
            line[page] = value == 0                                  ? '0'
                         : value == (uint32_t)(step << 16 | page)    ? '.'
                         : (value & 0xffff) == (uint32_t)(page)      ? (char)('a' + (value >> 16))
                                                                     : '?';
        }
    }
    printf("%-28s %s\n", name, line);
}

static void said(const char *name, long result) {
    printf("%-28s %s\n", name, result == -1 ? strerrorname_np(errno) : "done");
}

/* The functions, or the same by `syscall`. */
static int raw;
static void *map_of(void *to, size_t len, int protection, int flags, int fd, off_t from) {
    return raw ? (void *)syscall(SYS_mmap, to, len, protection, flags, fd, from) : mmap(to, len, protection, flags, fd, from);
}
static void *remap_of(void *from, size_t len, size_t new_len, int flags, void *to) {
    return raw ? (void *)syscall(SYS_mremap, from, len, new_len, flags, to) : mremap(from, len, new_len, flags, to);
}
#define by(name, ...) (raw ? (int)syscall(SYS_##name, __VA_ARGS__) : name(__VA_ARGS__))
#define mmap map_of
#define mremap remap_of
#define munmap(...) by(munmap, __VA_ARGS__)
#define mprotect(...) by(mprotect, __VA_ARGS__)
#define madvise(...) by(madvise, __VA_ARGS__)
#define mlock(...) by(mlock, __VA_ARGS__)
#define mlock2(...) by(mlock2, __VA_ARGS__)
#define mlockall(...) by(mlockall, __VA_ARGS__)

/* By the instruction itself, which nobody sees. */
static long locks_unseen(void *from, size_t len) {
    long result = SYS_mlock2;
    register long flags __asm__("rdx") = MLOCK_ONFAULT;
    __asm__ volatile("syscall" : "+a"(result) : "D"(from), "S"(len), "r"(flags) : "rcx", "r11", "memory");
    return result;
}

static volatile int ends;

/* Takes and gives back mappings of the size that the main thread replaces. */
static void *taker(void *argument) {
    uintptr_t wrong = 0;
    (void)argument;
    while (!ends) {
        unsigned char *mine = mmap(NULL, HALF, RW, ANON, -1, 0);
        for (size_t page = 0; page < NEAR; page++)
            wrong += mine[page * PAGE] != 0, mine[page * PAGE] = 77;
        for (size_t page = 0; page < NEAR; page++)
            wrong += mine[page * PAGE] != 77;
        munmap(mine, HALF);
    }
    return (void *)wrong;
}

int main(int count, char **words) {
    struct sigaction action = {.sa_handler = caught, .sa_flags = SA_NODEFER};
    int is_run = count > 1 && strcmp(words[1], "run") == 0;
    raw = count > 2 && strcmp(words[2], "raw") == 0;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    at = mmap(NULL, ALL * PAGE, RW, ANON, -1, 0);
    big = mmap(NULL, (size_t)BIG * PAGE, RW, ANON, -1, 0);
    other = mmap(NULL, 3 * HALF, RW, ANON, -1, 0);
    if (is_run) {
        at -= HALF;
        if (mmap(at, HALF, RW, ANON | MAP_FIXED, -1, 0) != at)
            return 2;
    }

    write_all(1);
    show("written", 1);
    /* From outside into ours. */
    mprotect(at, 2 * HALF, PROT_READ);
    write_all(2);
    show("read only", 2);
    mprotect(at, 2 * HALF, RW);
    write_all(3);
    show("writable again", 3);
    mprotect(at + PAGE, 2 * HALF, PROT_NONE);
    show("no access", 3);
    mprotect(at + PAGE, 2 * HALF, RW);
    show("access again", 3);
    madvise(at + HALF / 2, HALF, MADV_DONTNEED);
    show("dropped", 3);

    /* Locks, which the kernel may refuse, past the C library. */
    locks_unseen(at, 2 * HALF);
    evict();
    write_all(4);
    show("locked", 4);
    mlock2(at, 3 * HALF, MLOCK_ONFAULT);
    mlock(at, 3 * HALF);
    mlockall(MCL_CURRENT | MCL_ONFAULT);
    write_all(5);
    show("locked by functions", 5);
    munlockall();

    said("unmapped", munmap(at + HALF - PAGE, 3 * PAGE));
    show("unmapped", 5);
    said("protect over a hole", mprotect(at + HALF - 2 * PAGE, 6 * PAGE, PROT_READ));
    write_all(6);
    show("protect over a hole", 6);
    said("advice over a hole", madvise(at + HALF - 2 * PAGE, 6 * PAGE, MADV_DONTNEED));
    show("advice over a hole", 6);
    said("not on a page", munmap(at + HALF + 1, PAGE));
    said("no length", munmap(at + HALF, 0));
    said("fixed", mmap(at + HALF - 4 * PAGE, 8 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0);
    show("fixed", 6);
    said("fixed, taken", mmap(at + HALF, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED ? -1 : 0);
    write_all(7);
    show("fixed, taken", 7);

    /* Moves to addresses of the caller's choice: within ours, and out of it. */
    mprotect(at + 2 * HALF + PAGE, PAGE, PROT_READ);
    mprotect(at + 2 * HALF + 3 * PAGE, PAGE, PROT_NONE);
    said("to itself", mremap(at + HALF, HALF, HALF, MREMAP_MAYMOVE | MREMAP_FIXED, at + HALF) == MAP_FAILED ? -1 : 0);
    unsigned char *moved = at + 2 * HALF, *outside = mmap(NULL, HALF, PROT_NONE, ANON, -1, 0);
    unsigned char *places[] = {other + HALF, outside};
    for (int i = 0; i < 2; i++) {
        /* In parts of one access each, as older kernels want it. */
        const size_t parts[] = {0, 1, 2, 3, 4, NEAR};
        for (int part = 0; part < 5; part++)
            said("moved", mremap(moved + parts[part] * PAGE, (parts[part + 1] - parts[part]) * PAGE,
                                 (parts[part + 1] - parts[part]) * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
                                 places[i] + parts[part] * PAGE) == MAP_FAILED
                              ? -1
                              : 0);
        show("moved", 7);
        unsigned char *before = at;
        at = places[i] - 2 * HALF;
        for (volatile int page = 2 * NEAR; page < ALL; page++) {
            uint32_t value = 0;
            volatile char sign = '-', writes = '-';
            unsigned char *byte = at + (size_t)page * PAGE + 8;
            if (sigsetjmp(jump, 1) == 0) {
                memcpy(&value, byte, sizeof value);
                sign = value == (uint32_t)(7 << 16 | page) ? '.' : '?';
            }
            if (sigsetjmp(jump, 1) == 0) {
                *byte = *(volatile unsigned char *)byte;
                writes = 'w';
            }
            printf("%c%c ", sign, writes);
        }
        puts("");
        at = before;
        moved = places[i];
    }
    write_all(8);
    show("at the end", 8);

    pthread_t thread;
    void *wrong_there = NULL;
    uintptr_t wrong = 0;
    pthread_create(&thread, NULL, taker, NULL);
    for (int round = 0; round < 500; round++) {
        wrong += mmap(other, HALF, RW, ANON | MAP_FIXED, -1, 0) != (void *)other;
        for (size_t page = 0; page < NEAR; page++)
            wrong += other[page * PAGE] != 0, other[page * PAGE] = 55;
        for (size_t page = 0; page < NEAR; page++)
            wrong += other[page * PAGE] != 55;
    }
    ends = 1;
    pthread_join(thread, &wrong_there);
    printf("%lu and %lu wrong with two threads\n", (unsigned long)wrong, (unsigned long)(uintptr_t)wrong_there);
    return 0;
}
