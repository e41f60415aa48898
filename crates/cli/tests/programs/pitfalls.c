/* What programs do that is easy to get wrong for those that stand in for the C library: one thing for each first
 * argument. Memory has left DRAM before, as so much other is written. Prints what it found. Further arguments are said
 * there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { PAGE = 4096, PAGES = 512, BIG = 8192 };

static unsigned char *memory, *big;
static sigjmp_buf back;
extern char **environ;

static void *map(size_t bytes) {
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
static void evict(void) {
    for (size_t page = 0; page < BIG; page++)
        big[page * PAGE]++;
}
static unsigned char expected(size_t page) { return (unsigned char)(page * 7 + 1); }
static size_t wrong(void) {
    size_t count = 0;
    for (size_t page = 0; page < PAGES; page++)
        count += memory[page * PAGE + 9] != expected(page);
    return count;
}
static void say(const char *what, long result) {
    printf("%s: %s\n", what, result == -1 ? strerrorname_np(errno) : "done");
}
static void act(int number, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {0};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | flags;
    if (sigaction(number, &action, NULL))
        exit(4);
}

/* ---- threads that end with a lock ---- */

static void *dies_with(void *mutex) {
    pthread_mutex_lock(mutex);
    return NULL;
}
static void robust(void) {
    static pthread_mutex_t in_dram;
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_t *ours = (pthread_mutex_t *)memory;
    printf("robust in mapped memory: %s\n", strerrorname_np(pthread_mutex_init(ours, &attributes)));
    printf("robust elsewhere: %d\n", pthread_mutex_init(&in_dram, &attributes));
    printf("another kind: %d\n", pthread_mutex_init(ours, NULL));
    pthread_t thread;
    pthread_create(&thread, NULL, dies_with, &in_dram);
    pthread_join(thread, NULL);
    evict();
    printf("its owner: %s\n", pthread_mutex_lock(&in_dram) == EOWNERDEAD ? "dead" : "?");
    printf("consistent: %d\n", pthread_mutex_consistent(&in_dram));
}

/* ---- huge pages ---- */

static void huge(void) {
    char line[256];
    unsigned long from, to, kib = 0, size = 0;
    int inside = 0;
    say("huge pages", madvise(big, (size_t)BIG * PAGE, MADV_HUGEPAGE));
    say("collapse", madvise(memory, (size_t)PAGES * PAGE, MADV_COLLAPSE));
    evict();
    FILE *maps = fopen("/proc/self/smaps", "r");
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = from < (uintptr_t)(big + (size_t)BIG * PAGE) && to > (uintptr_t)big;
        if (inside && sscanf(line, "AnonHugePages: %lu", &size) == 1)
            kib += size;
    }
    fclose(maps);
    printf("KiB in huge pages: %lu, wrong: %zu\n", kib, wrong());
}

/* ---- libraries ---- */

static void library(void) {
    Dl_info info;
    /* Of what stands in for mmap. */
    if (dladdr(dlsym(RTLD_DEFAULT, "mmap"), &info) == 0)
        exit(5);
    for (int i = 0; i < 3; i++) {
        void *handle = dlopen(info.dli_fname, RTLD_NOW);
        if (!handle)
            exit(6);
        dlclose(handle), dlclose(handle);
    }
    void *other = dlopen("libresolv.so.2", RTLD_NOW);
    if (other)
        dlclose(other);
    evict();
    printf("libraries, wrong: %zu\n", wrong());
}

/* ---- processes ---- */

static int reads(void *argument) {
    (void)argument;
    memory[9] = 77;
    return wrong() == 1 ? 42 : 1;
}
static const char *end_of(pid_t pid) {
    static char text[64];
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return strerrorname_np(errno);
    if (WIFSIGNALED(status))
        snprintf(text, sizeof text, "%s", sigabbrev_np(WTERMSIG(status)));
    else
        snprintf(text, sizeof text, "exit %d", WEXITSTATUS(status));
    return text;
}
static void processes(void) {
    static char stack[256 * 1024] __attribute__((aligned(16)));
    pid_t pid = clone(reads, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    const char *end = end_of(pid);
    printf("shared memory: %s, seen: %d\n", end, memory[9]);
    memory[9] = expected(0);
    evict();
    pid = clone(reads, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, NULL);
    end = end_of(pid);
    printf("shared until it ends: %s, seen: %d\n", end, memory[9]);
    memory[9] = expected(0);
    evict();
    if ((pid = vfork()) == 0) {
        memory[9] = 78;
        _exit(wrong() == 1 ? 43 : 1);
    }
    end = end_of(pid);
    printf("vfork: %s, seen: %d\n", end, memory[9]);
    memory[9] = expected(0);
    evict();
    if ((pid = vfork()) == 0) {
        char *words[] = {"true", NULL};
        execve("/bin/true", words, environ);
        _exit(1);
    }
    printf("vfork and exec: %s\n", end_of(pid));
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    fflush(stdout);
    /* Memory of flash is not there, and never zeros. */
    if ((pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) == 0)
        _exit(memory[9]);
    printf("a system call: %s\n", end_of(pid));
    if ((pid = _Fork()) == 0)
        _exit(memory[9]);
    printf("_Fork: %s\n", end_of(pid));
    evict();
    printf("processes, wrong: %zu\n", wrong());
}
static void executes(int count, char **words) {
    /* Three lives, one after the other. */
    int life = count > 2 ? atoi(words[2]) : 1;
    printf("life %d, wrong: %zu\n", life, wrong());
    fflush(stdout);
    char number[16];
    snprintf(number, sizeof number, "%d", life + 1);
    if (life < 3)
        execl(words[0], words[0], words[1], number, NULL);
}

/* ---- the stack ---- */

static int deeper(int depth) {
    volatile char here[4096];
    memset((void *)here, depth, sizeof here);
    return deeper(depth + 1) + here[depth % 4096];
}
static void overflows(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    siglongjmp(back, 1);
}
static void stack(int count) {
    stack_t own = {.ss_sp = malloc(64 << 10), .ss_size = 64 << 10};
    sigaltstack(&own, NULL);
    act(SIGSEGV, overflows, SA_ONSTACK);
    for (int i = 0; i < 2; i++)
        if (sigsetjmp(back, 1) == 0)
            deeper(1);
    evict();
    printf("overflows are caught, wrong: %zu\n", wrong());
    fflush(stdout);
    if (count > 2) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL);
        deeper(1);
    }
}

/* ---- no more memory ---- */

static void full(void) {
    static void *all[4096];
    int count = 0;
    size_t bytes = 1 << 20;
    while (count < 4096 && (all[count] = map(bytes)) != MAP_FAILED)
        count++;
    printf("mmap: %s\n", count < 4096 ? strerrorname_np(errno) : "?");
    errno = 0;
    void *block = malloc(bytes);
    printf("malloc: %s %s\n", block ? "?" : "null", strerrorname_np(errno));
    errno = 0;
    block = calloc(2, bytes / 2);
    printf("calloc: %s %s\n", block ? "?" : "null", strerrorname_np(errno));
    printf("posix_memalign: %s\n", strerrorname_np(posix_memalign(&block, 1 << 16, bytes)));
    munmap(all[--count], bytes);
    unsigned char *kept = malloc(bytes / 2);
    memset(kept, 5, bytes / 2);
    errno = 0;
    block = realloc(kept, 8 * bytes);
    printf("realloc: %s %s, kept: %d\n", block ? "?" : "null", strerrorname_np(errno), kept[bytes / 2 - 1]);
    free(kept);
    evict();
    while (count > 0)
        munmap(all[--count], bytes);
    block = malloc(8 * bytes);
    memset(block, 6, 8 * bytes);
    printf("given back: %d, wrong: %zu\n", ((unsigned char *)block)[8 * bytes - 1], wrong());
}

/* The kernel maps nothing more, not even for what is to be known of mappings and blocks. */
static void scarce(void) {
    enum { MOST = 60000 };
    static unsigned char *all[MOST];
    struct rlimit before, now;
    long had = 0;
    size_t count = 0, lost = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%ld", &had) != 1 || getrlimit(RLIMIT_AS, &before))
        exit(7);
    fclose(statm);
    printf("before\n");
    now = before;
    /* Threads of the library may map some of it meanwhile. */
    now.rlim_cur = (rlim_t)had * PAGE + (256 << 10);
    setrlimit(RLIMIT_AS, &now);
    for (; count < MOST; count++) {
        all[count] = count % 2 ? malloc(PAGE) : map(PAGE);
        if (all[count] == NULL || all[count] == MAP_FAILED)
            break;
        all[count][9] = expected(count);
    }
    printf("refused: %s, of many: %d\n", count < MOST ? strerrorname_np(errno) : "?", count > 1000);
    /* What is there can be used, protected and given back. */
    evict();
    for (size_t i = 0; i < count; i++)
        lost += all[i][9] != expected(i);
    for (size_t i = 0; i < count; i += 4)
        lost += mprotect(all[i], PAGE, PROT_READ) != 0;
    for (size_t i = 0; i < count; i += 2)
        lost += munmap(all[i], PAGE) != 0;
    for (size_t i = 1; i < count; i += 4)
        free(all[i]);
    for (size_t i = 3; i < count; i += 4)
        lost += all[i][9] != expected(i);
    printf("kept, wrong: %zu and %zu\n", lost, wrong());
    setrlimit(RLIMIT_AS, &before);
    unsigned char *block = malloc(8 * PAGE);
    memset(block, 6, 8 * PAGE);
    evict();
    printf("again: %d\n", block[8 * PAGE - 1]);
}

/* ---- blocks that are none. Which: the second argument ---- */

static void frees(const char *which) {
    unsigned char *block = malloc(1 << 20);
    memset(block, 1, 1 << 20);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    printf("before\n");
    fflush(stdout);
    if (strcmp(which, "twice") == 0)
        free(block), free(block);
    if (strcmp(which, "inside") == 0)
        free(block + PAGE);
    if (strcmp(which, "mapping") == 0)
        free(memory);
    if (strcmp(which, "resize") == 0)
        free(block), block = realloc(block, 2 << 20);
    printf("after %p\n", (void *)block);
}

/* ---- what else is asked of ranges ---- */

static void ranges(void) {
    unsigned char there[8] = {0};
    evict();
    memory[0]++, memory[3 * PAGE]++;
    say("mincore", mincore(memory, 4 * PAGE, there));
    /* What left DRAM is not there; but read-ahead may have brought what is behind. */
    printf("there: %d, %d\n", there[0] & 1, there[3] & 1);
    memory[0]--, memory[3 * PAGE]--;
    say("mincore of no page", mincore(memory + 1, PAGE, there));
    say("will need", madvise(memory, PAGES * PAGE, MADV_WILLNEED));
    say("in order", madvise(memory, PAGES * PAGE, MADV_SEQUENTIAL));
    say("posix will need", posix_madvise(memory, PAGES * PAGE, POSIX_MADV_WILLNEED));
    say("msync", msync(memory, PAGES * PAGE, MS_SYNC));
    say("munlock", munlock(memory, PAGE));
    printf("kept, wrong: %zu\n", wrong());
    munmap(memory + 8 * PAGE, 8 * PAGE);
    say("mincore of a hole", mincore(memory + 6 * PAGE, 4 * PAGE, there));
    say("msync of a hole", msync(memory, PAGES * PAGE, MS_ASYNC));
    say("will need of a hole", madvise(memory, PAGES * PAGE, MADV_WILLNEED));
    say("protect a hole", mprotect(memory + 6 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE));
    memset(memory + 16 * PAGE, 0, PAGE);
    printf("behind the hole: %d\n", memory[17 * PAGE + 9] == expected(17));
}

/* What is asked of memory and cannot be had. */
static void asked(void) {
    /* WIPEONFORK, POPULATE_READ, POPULATE_WRITE, REMOVE, GUARD_INSTALL. */
    const int advice[] = {MADV_DONTFORK, 18, 22, 23, MADV_REMOVE, 102};
    for (size_t i = 0; i < sizeof advice / sizeof *advice; i++)
        say("advice", madvise(memory, PAGES * PAGE, advice[i]));
    say("to children", madvise(memory, PAGES * PAGE, MADV_DOFORK));
    say("mlock", mlock(memory, PAGE));
    say("mlock2", mlock2(memory, PAGE, MLOCK_ONFAULT));
    say("mlockall", mlockall(MCL_CURRENT | MCL_ONFAULT));
    say("executable", mprotect(memory, PAGE, PROT_READ | PROT_EXEC));
    evict();
    printf("kept, wrong: %zu\n", wrong());
}

/* ---- calls that wait ---- */

/* Pages that were written leave meanwhile. No signal comes, so nothing ends early. */
static void waits(void) {
    struct epoll_event event;
    int ended_early = 0, fd = epoll_create1(0);
    for (size_t round = 0; round < 200; round++) {
        for (size_t page = 0; page < 16; page++)
            big[(round * 16 + page) * 7919 % BIG * PAGE]++;
        ended_early += epoll_wait(fd, &event, 1, 2) != 0;
    }
    printf("ended early: %d\n", ended_early);
}

/* ---- memory that is unmapped while others touch it ---- */

enum { RACY = 512, PART = 64 };
static __thread sigjmp_buf own_back;
static volatile int is_over;
static unsigned char *racy;
static void jumps(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    siglongjmp(own_back, 1);
}
/* What is there was written here, or is new. What is not there is a signal. */
static void *touches(void *argument) {
    volatile uint64_t state = (uintptr_t)argument;
    volatile size_t lost = 0, found = 0, signals = 0;
    while (!is_over) {
        if (sigsetjmp(own_back, 1)) {
            signals++;
            continue;
        }
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        unsigned char *place = racy + (state >> 33) % RACY * PAGE, now = *place;
        lost += now != 0 && now != 1;
        *place = 1;
        found++;
    }
    return (void *)(lost + (found == 0) + (signals == 0));
}
static void races(void) {
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    size_t lost = 0;
    act(SIGSEGV, jumps, SA_NODEFER), act(SIGBUS, jumps, SA_NODEFER);
    racy = map((size_t)RACY * PAGE);
    for (int i = 0; i < THREADS; i++)
        lost += pthread_create(&threads[i], NULL, touches, (void *)(uintptr_t)(i + 1)) != 0;
    for (size_t round = 0; round < 150; round++) {
        unsigned char *part = racy + round % (RACY / PART) * PART * PAGE;
        lost += munmap(part, (size_t)PART * PAGE) != 0;
        for (size_t page = 0; page < 64; page++)
            big[(round * 64 + page) * 7919 % BIG * PAGE]++;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        lost += mmap(part, (size_t)PART * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) != part;
        if (round % 3 == 0)
            lost += madvise(part, (size_t)PART * PAGE, MADV_DONTNEED) != 0;
    }
    is_over = 1;
    for (int i = 0; i < THREADS; i++) {
        void *wrong_there;
        pthread_join(threads[i], &wrong_there);
        lost += (uintptr_t)wrong_there;
    }
    printf("races, wrong: %zu and %zu\n", lost, wrong());
}

/* ---- arguments that a system call does not have ---- */

static void unasked(void) {
    static int word;
    unsigned char there[3];
    evict();
    say("wake", syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, memory, memory + 2 * PAGE, 0));
    say("mincore", mincore(memory, sizeof there * PAGE, there));
    printf("there: %d, %d, wrong: %zu\n", there[0] & 1, there[2] & 1, wrong());
}

/* ---- pages that the kernel keeps ---- */

static void pipes(void) {
    enum { SENT = 16 };
    static unsigned char got[SENT * PAGE];
    int ends[2], on = 1;
    if (pipe(ends) || fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) < 0)
        exit(7);
    struct iovec sent[2] = {{memory, 8 * PAGE}, {memory + 8 * PAGE, 8 * PAGE}};
    printf("vmsplice: %zd\n", vmsplice(ends[1], sent, 2, 0));
    int wire = socket(AF_INET, SOCK_STREAM, 0);
    say("zero copies", setsockopt(wire, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on));
    evict(), evict();
    close(ends[1]);
    ssize_t length = read(ends[0], got, sizeof got);
    size_t lost = 0;
    for (size_t page = 0; page < SENT; page++)
        lost += got[page * PAGE + 9] != expected(page);
    printf("read: %zd, wrong: %zu and %zu\n", length, lost, wrong());
}

/* ---- more children than may share memory, all alive ---- */

static void crowd(void) {
    enum { COUNT = 20 };
    pid_t pids[COUNT];
    int gates[2], with = 0, without = 0;
    char byte;
    munmap(big, (size_t)BIG * PAGE);
    if (pipe(gates))
        exit(7);
    for (int i = 0; i < COUNT; i++)
        if ((pids[i] = fork()) == 0) {
            close(gates[1]);
            (void)!read(gates[0], &byte, 1);
            _exit(wrong() != 0);
        }
    size_t lost = wrong();
    big = map((size_t)BIG * PAGE);
    evict();
    lost += wrong();
    close(gates[1]);
    for (int i = 0; i < COUNT; i++) {
        const char *end = end_of(pids[i]);
        with += strcmp(end, "exit 0") == 0, without += strcmp(end, "SEGV") == 0;
    }
    evict();
    printf("with memory: %d, without: %d, wrong: %zu and %zu\n", with, without, lost, wrong());
}

/* ---- programs that are started from memory that has left DRAM ---- */

static void spawns(void) {
    enum { COUNT = 40, EACH = 8 };
    int ended = 0;
    for (int i = 0; i < COUNT; i++) {
        char *place = (char *)memory + i * EACH * PAGE + 512, **list = (char **)(place + PAGE);
        strcpy(place, "/bin/sh"), strcpy(place + 16, "-c"), strcpy(place + 32, "exit 3");
        list[0] = place, list[1] = place + 16, list[2] = place + 32, list[3] = NULL;
    }
    evict();
    for (int i = 0; i < COUNT; i++) {
        char *place = (char *)memory + i * EACH * PAGE + 512;
        int status = 0;
        pid_t pid = vfork();
        if (pid == 0) {
            execv(place, (char **)(place + PAGE));
            _exit(99);
        }
        waitpid(pid, &status, 0);
        ended += WIFEXITED(status) && WEXITSTATUS(status) == 3;
    }
    printf("programs: %d\n", ended);
    evict();
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(wrong() != 0);
    printf("a fork behind them: %s, wrong: %zu\n", end_of(pid), wrong());
}

/* ---- devices that reach memory by themselves, while its pages have to leave. Requests: of the kernel's AIO. Ring: of
 * io_uring. Registered: the same, of memory that the ring has for good ---- */

static volatile int moved;
static void *evicts(void *unused) {
    while (!moved)
        evict();
    return unused;
}
/* All of one memory or of another in one call, or in requests of 8 pages. Returns how much. */
static long all(int fd, void *at, int writes, int in_requests) {
    enum { EACH = 8, COUNT = PAGES / EACH };
    static struct iocb requests[COUNT], *submitted[COUNT];
    static struct io_event ended[COUNT];
    aio_context_t context = 0;
    long bytes = 0;
    if (!in_requests)
        return writes ? pwrite(fd, at, (size_t)PAGES * PAGE, 0) : pread(fd, at, (size_t)PAGES * PAGE, 0);
    for (int i = 0; i < COUNT; i++) {
        requests[i] = (struct iocb){.aio_lio_opcode = writes ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD, .aio_fildes = (uint32_t)fd};
        requests[i].aio_buf = (uint64_t)at + (uint64_t)i * EACH * PAGE;
        requests[i].aio_nbytes = EACH * PAGE, requests[i].aio_offset = (int64_t)i * EACH * PAGE;
        submitted[i] = &requests[i];
    }
    if (syscall(SYS_io_setup, COUNT, &context) || syscall(SYS_io_submit, context, COUNT, submitted) != COUNT)
        return -1;
    long count = syscall(SYS_io_getevents, context, COUNT, COUNT, ended, NULL);
    for (long i = 0; i < count; i++)
        bytes += ended[i].res;
    syscall(SYS_io_destroy, context);
    return bytes;
}
/* The same in requests of io_uring, without a library. */
static long by_ring(int fd, void *at, int writes, int registered) {
    enum { EACH = 8, COUNT = PAGES / EACH };
    struct io_uring_params params = {0};
    struct iovec buffer = {at, (size_t)PAGES * PAGE};
    int ring = (int)syscall(SYS_io_uring_setup, COUNT, &params), protection = PROT_READ | PROT_WRITE;
    if (ring < 0 || (registered && syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &buffer, 1)))
        return -1;
    size_t in_bytes = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    size_t out_bytes = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    size_t entries_bytes = params.sq_entries * sizeof(struct io_uring_sqe);
    char *in = mmap(NULL, in_bytes, protection, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *out = mmap(NULL, out_bytes, protection, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *entries = mmap(NULL, entries_bytes, protection, MAP_SHARED, ring, IORING_OFF_SQES);
    if (in == MAP_FAILED || out == MAP_FAILED || entries == MAP_FAILED)
        return -1;
    unsigned char read = registered ? IORING_OP_READ_FIXED : IORING_OP_READ;
    unsigned char write = registered ? IORING_OP_WRITE_FIXED : IORING_OP_WRITE;
    for (unsigned i = 0; i < COUNT; i++) {
        entries[i] = (struct io_uring_sqe){.opcode = writes ? write : read, .fd = fd};
        entries[i].addr = (uint64_t)at + (uint64_t)i * EACH * PAGE;
        entries[i].len = EACH * PAGE, entries[i].off = (uint64_t)i * EACH * PAGE;
        ((unsigned *)(in + params.sq_off.array))[i] = i;
    }
    __atomic_store_n((unsigned *)(in + params.sq_off.tail), COUNT, __ATOMIC_RELEASE);
    long bytes = 0, submitted = syscall(SYS_io_uring_enter, ring, COUNT, COUNT, IORING_ENTER_GETEVENTS, NULL, 0);
    unsigned ended = __atomic_load_n((unsigned *)(out + params.cq_off.tail), __ATOMIC_ACQUIRE);
    for (unsigned i = 0; i < ended; i++)
        bytes += ((struct io_uring_cqe *)(out + params.cq_off.cqes))[i].res;
    if (registered)
        syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, NULL, 0);
    munmap(in, in_bytes), munmap(out, out_bytes), munmap(entries, entries_bytes);
    close(ring);
    return submitted == COUNT && ended == COUNT ? bytes : -1;
}
static long moves(const char *how, int fd, void *at, int writes) {
    if (strcmp(how, "ring") == 0 || strcmp(how, "registered") == 0)
        return by_ring(fd, at, writes, strcmp(how, "registered") == 0);
    return all(fd, at, writes, strcmp(how, "requests") == 0);
}
static void direct(const char *how) {
    int fd = open("/var/tmp", O_TMPFILE | O_RDWR | O_DIRECT, 0600);
    unsigned char *copy = map((size_t)PAGES * PAGE);
    pthread_t thread;
    size_t lost = 0;
    if (fd < 0 || pthread_create(&thread, NULL, evicts, NULL)) {
        say("a file without the page cache", -1);
        return;
    }
    long written = moves(how, fd, memory, 1);
    if (written == -1 && errno == ENOSYS) {
        say("requests", written);
        moved = 1;
        pthread_join(thread, NULL);
        printf("wrong: %zu\n", wrong());
        return;
    }
    printf("written: %ld\n", written);
    for (int round = 0; round < 4; round++) {
        memset(copy, 1, (size_t)PAGES * PAGE);
        long bytes = moves(how, fd, copy, 0);
        for (size_t page = 0; page < PAGES; page++)
            lost += copy[page * PAGE + 9] != expected(page);
        printf("read: %ld\n", bytes);
    }
    moved = 1;
    pthread_join(thread, NULL);
    printf("lost: %zu, wrong: %zu\n", lost, wrong());
}

/* What sets requests up, of libraries that need not be here, and that not all see. */
static void setups(void) {
    static const char *names[] = {"io_setup", "io_queue_init", "io_uring_setup", "io_uring_queue_init",
                                  "io_uring_queue_init_params", "io_uring_queue_init_mem"};
    static char place[2][PAGE];
    void *aio = dlopen("libaio.so.1", RTLD_NOW), *uring = dlopen("liburing.so.2", RTLD_NOW);
    printf("libaio: %d, liburing: %d\n", aio != NULL, uring != NULL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *libraries[] = {RTLD_DEFAULT, aio, uring}, *found = NULL;
        for (size_t at = 0; at < 3 && !found; at++)
            found = at == 0 || libraries[at] ? dlsym(libraries[at], names[i]) : NULL;
        int (*function)(unsigned, void *, void *, void *, size_t) = (int (*)(unsigned, void *, void *, void *, size_t))found;
        memset(place, 0, sizeof place);
        int result = function ? function(4, place[0], place[1], NULL, 0) : -ENOSYS;
        printf("%s: %s\n", names[i], result < 0 ? strerrorname_np(-result) : "done");
    }
}

/* ---- words that the kernel writes when a thread begins or ends ---- */

static int ends(void *unused) {
    (void)unused;
    _exit(0);
}
static void word(const char *what, long pid) {
    say(what, pid);
    if (pid > 0)
        waitpid((pid_t)pid, NULL, 0);
}
static void word_of(int *place) {
    static char stack[64 << 10] __attribute__((aligned(16)));
    int alone = CLONE_VM | CLONE_VFORK | SIGCHLD;
    struct { uint64_t flags, pidfd, child, parent, signal, rest[6]; } arguments = {CLONE_CHILD_CLEARTID, 0, (uint64_t)place, 0, SIGCHLD, {0}};
    word("clear", clone(ends, stack + sizeof stack, alone | CLONE_CHILD_CLEARTID, NULL, NULL, NULL, place));
    word("child", clone(ends, stack + sizeof stack, alone | CLONE_CHILD_SETTID, NULL, NULL, NULL, place));
    word("parent", clone(ends, stack + sizeof stack, alone | CLONE_PARENT_SETTID, NULL, place, NULL, NULL));
    fflush(stdout);
    long pid = syscall(SYS_clone, SIGCHLD | CLONE_CHILD_CLEARTID, 0, 0, place, 0);
    if (pid == 0)
        _exit(0);
    word("clone", pid);
    if ((pid = syscall(SYS_clone3, &arguments, sizeof arguments)) == 0)
        _exit(0);
    word("clone3", pid);
}
static void *address_of_thread(void *place) {
    say("of this thread", syscall(SYS_set_tid_address, place) < 0 ? -1 : 0);
    return NULL;
}
static void words_of_threads(void) {
    static int in_dram;
    pthread_t thread;
    evict();
    word_of((int *)memory + 1);
    word_of(&in_dram);
    pthread_create(&thread, NULL, address_of_thread, memory);
    pthread_join(thread, NULL);
    say("a list", syscall(SYS_set_robust_list, memory, 24));
    evict();
    printf("words, wrong: %zu\n", wrong());
}

/* ---- flash that fails. How: the second argument ---- */

static void fails(int number, siginfo_t *info, void *context) {
    (void)context;
    uintptr_t at = (uintptr_t)info->si_addr;
    int ours = (at - (uintptr_t)memory) / PAGE < PAGES || (at - (uintptr_t)big) / PAGE < BIG;
    printf("%s, code %s, its page: %d\n", sigabbrev_np(number), info->si_code == BUS_MCEERR_AR ? "MCEERR_AR" : info->si_code == BUS_ADRERR ? "ADRERR" : "?", ours);
    siglongjmp(back, 1);
}
static void broken(const char *how) {
    char path[64], name[256];
    static char noise[1 << 20] __attribute__((aligned(4096)));
    int fd, count = 0;
    memset(noise, 99, sizeof noise);
    /* The file of the flash, which has no name any more. */
    for (fd = 3; fd < 4096; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(path, name, sizeof name - 1);
        if (length > 0 && (name[length] = 0, strstr(name, "fulgurite-run-")))
            break;
    }
    off_t bytes = lseek(fd, 0, SEEK_END);
    evict(), evict();
    if (strcmp(how, "cut") == 0)
        count = ftruncate(fd, 0);
    else
        for (off_t at = 0; at < bytes; at += (off_t)sizeof noise)
            count |= pwrite(fd, noise, sizeof noise, at) < 0;
    printf("%s: %d\n", how, count);
    act(SIGBUS, fails, 0);
    volatile int failed = 0;
    volatile size_t other = 0;
    /* Those of `memory` may all be in DRAM again. Those of `big` are more than it holds. */
    for (volatile size_t page = 0; page < PAGES + BIG && failed < 2; page += 64)
        if (sigsetjmp(back, 1) == 0)
            other += page < PAGES ? memory[page * PAGE + 9] != expected(page) : big[(page - PAGES) * PAGE] != 3;
        else
            failed++;
    printf("failed: %d, wrong: %zu\n", failed, other);
    fflush(stdout);
    _exit(0);
}

int main(int count, char **words) {
    const char *which = count > 1 ? words[1] : "", *how = count > 2 ? words[2] : "";
    setvbuf(stdout, NULL, _IOLBF, 4096);
    memory = map((size_t)PAGES * PAGE);
    big = map((size_t)BIG * PAGE);
    for (size_t page = 0; page < PAGES; page++)
        memory[page * PAGE + 9] = expected(page);
    evict();
    if (strcmp(which, "robust") == 0)
        robust();
    if (strcmp(which, "huge") == 0)
        huge();
    if (strcmp(which, "library") == 0)
        library();
    if (strcmp(which, "processes") == 0)
        processes();
    if (strcmp(which, "exec") == 0)
        executes(count, words);
    if (strcmp(which, "stack") == 0)
        stack(count);
    if (strcmp(which, "full") == 0)
        full();
    if (strcmp(which, "scarce") == 0)
        scarce();
    if (strcmp(which, "frees") == 0)
        frees(how);
    if (strcmp(which, "ranges") == 0)
        ranges();
    if (strcmp(which, "asked") == 0)
        asked();
    if (strcmp(which, "waits") == 0)
        waits();
    if (strcmp(which, "races") == 0)
        races();
    if (strcmp(which, "unasked") == 0)
        unasked();
    if (strcmp(which, "pipes") == 0)
        pipes();
    if (strcmp(which, "crowd") == 0)
        crowd();
    if (strcmp(which, "spawns") == 0)
        spawns();
    if (strcmp(which, "direct") == 0)
        direct(how);
    if (strcmp(which, "setups") == 0)
        setups();
    if (strcmp(which, "words") == 0)
        words_of_threads();
    if (strcmp(which, "broken") == 0)
        broken(how);
    return 0;
}
