/* What surrounds a process, with memory most of which has left DRAM. The first word says what is done:
 *   ends HOW      the program's threads end in an unusual order or way
 *   confined HOW  it confines itself by seccomp
 *   limited HOW   it lowers its own limits
 *   watches HOW   it watches its memory by a userfaultfd
 *   closed FILE   it may have no standard streams; what it finds goes to the file
 *   seen HOW      others read its memory, or it dumps core
 *   moved -       it moves memory and keeps the old place (mremap)
 * Prints what it finds, which must be the same without fulgurite, but for what is refused. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, WORDS = 12 * MIB / 8 };

static uint64_t *memory;

static uint64_t expected(size_t word) { return word * 2654435761u; }
static void fill(void) {
    memory = mmap(NULL, WORDS * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        exit(3);
    for (size_t word = 0; word < WORDS; word++)
        memory[word] = expected(word);
}
/* One word of each page. */
static size_t wrong(void) {
    size_t wrong = 0;
    for (size_t word = 0; word < WORDS; word += 512)
        wrong += memory[word] != expected(word);
    return wrong;
}
/* With nothing but a system call: the program may have lost the others. */
static void say(const char *text) {
    /* Nobody may hear it. */
    (void)!write(1, text, strlen(text));
}
static void say_wrong(void) { say(wrong() ? "wrong\n" : "right\n"); }

/* ---- how threads end ---- */

static void at_exit(void) { say("at exit\n"); }

/* With ever more memory that stays in DRAM, 3 MiB in all. */
static void *works(void *unused) {
    enum { STEPS = 12 };
    (void)unused;
    for (int i = 0; i < STEPS; i++) {
        for (int block = 0; block < 256; block++)
            memset(malloc(1024), i, 1024);
        if (i % 4 == 0 && wrong())
            say("wrong\n");
        usleep(10000);
    }
    say_wrong();
    return NULL;
}
static void *works_and_leaves(void *code) {
    works(NULL);
    syscall(SYS_exit, code);
    return NULL;
}
static void begin(void *(*body)(void *), long argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, (void *)argument))
        exit(5);
    pthread_detach(thread);
}
static void kills_its_thread(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        say("no filter\n");
    getppid();
}
static void ends(const char *how) {
    atexit(at_exit);
    if (!strcmp(how, "last")) /* main leaves the rest to a thread */
        begin(works, 0), pthread_exit(NULL);
    if (!strcmp(how, "both")) /* by system calls: nothing that is registered for the end is called */
        begin(works_and_leaves, 3), syscall(SYS_exit, 3);
    say_wrong();
    if (!strcmp(how, "alone"))
        pthread_exit(NULL);
    if (!strcmp(how, "call"))
        syscall(SYS_exit, 9);
    if (!strcmp(how, "killed"))
        kills_its_thread();
    if (!strcmp(how, "child")) {
        pid_t child = fork();
        if (child == 0)
            begin(works, 0), pthread_exit(NULL);
        int status = 0;
        waitpid(child, &status, 0);
        printf("child: %#x\n", status);
    }
}

/* ---- sandboxes ---- */

enum { ALLOWED_MOST = 32 };

/* Others than these calls are answered by `answer`, or these are. */
static int set_filter(const int *calls, int count, unsigned answer, int are_allowed, unsigned flags, int by_prctl) {
    struct sock_filter code[ALLOWED_MOST + 3];
    int used = 0;
    code[used++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < count; i++)
        code[used++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], count - i, 0);
    unsigned answers[2] = {are_allowed ? answer : SECCOMP_RET_ALLOW, are_allowed ? SECCOMP_RET_ALLOW : answer};
    code[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, answers[0]);
    code[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, answers[1]);
    struct sock_fprog program = {used, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (by_prctl)
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}
static const int USED[] = {SYS_read, SYS_write, SYS_exit, SYS_exit_group, SYS_rt_sigreturn, SYS_brk, SYS_futex, SYS_munmap};
static const int NEEDED[] = {SYS_pread64, SYS_pwrite64, SYS_io_uring_enter, SYS_ioctl, SYS_madvise, SYS_fallocate, SYS_mprotect};
#define LIST(calls) calls, sizeof calls / sizeof *calls

static void *sleeps(void *unused) {
    pause();
    return unused;
}
static void confined(const char *how) {
    int result = 0;
    if (!strcmp(how, "strict"))
        result = prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    if (!strcmp(how, "few"))
        result = set_filter(LIST(USED), SECCOMP_RET_KILL_PROCESS, 1, 0, 1);
    if (!strcmp(how, "few-by-call"))
        result = set_filter(LIST(USED), SECCOMP_RET_KILL_PROCESS, 1, 0, 0);
    if (!strcmp(how, "denied"))
        result = set_filter(LIST(NEEDED), SECCOMP_RET_ERRNO | EPERM, 0, 0, 0);
    if (!strcmp(how, "harmless"))
        result = set_filter((int[]){SYS_ptrace}, 1, SECCOMP_RET_KILL_PROCESS, 0, SECCOMP_FILTER_FLAG_TSYNC, 0);
    if (!strcmp(how, "all"))
        result = set_filter(LIST(NEEDED), SECCOMP_RET_ERRNO | EPERM, 0, SECCOMP_FILTER_FLAG_TSYNC, 0);
    if (!strcmp(how, "all-of-two")) {
        begin(sleeps, 0);
        result = set_filter(LIST(NEEDED), SECCOMP_RET_ERRNO | EPERM, 0, SECCOMP_FILTER_FLAG_TSYNC, 0);
    }
    if (result)
        say("refused\n");
    say_wrong();
    if (!strcmp(how, "strict"))
        syscall(SYS_exit, 0);
    _exit(0);
}

/* ---- limits ---- */

static void limited(const char *how) {
    struct {
        const char *name;
        int what;
        rlim_t limit;
    } all[] = {{"fsize", RLIMIT_FSIZE, MIB}, {"nofile", RLIMIT_NOFILE, 0}, {"nproc", RLIMIT_NPROC, 1}, {"memlock", RLIMIT_MEMLOCK, 0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct rlimit limit = {all[i].limit, all[i].limit};
        if (!strcmp(how, all[i].name) && setrlimit(all[i].what, &limit))
            printf("%s: %s\n", how, strerrorname_np(errno));
    }
    for (size_t word = 0; word < WORDS; word += 512)
        memory[word] = expected(word);
    printf("wrong: %zu\n", wrong());
    fflush(stdout);
}

/* ---- descriptors ---- */

static void closed(const char *file) {
    FILE *result = fopen(file, "w");
    for (int fd = 0; fd < 3; fd++) {
        char name[32], is[256] = "closed";
        struct stat found;
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(name, is, sizeof is - 1);
        /* What is open there is nobody's file, memory or ring. */
        int is_file = fstat(fd, &found) == 0 && !S_ISCHR(found.st_mode) && fileno(result) != fd;
        fprintf(result, "%d: %s\n", fd, is_file ? (is[length < 0 ? 0 : length] = 0, is) : "free");
    }
    say("lost\n");
    fprintf(result, "wrong: %zu\n", wrong());
    fclose(result);
}

/* ---- others ---- */

/* The process that reads another one's memory. */
static int reads(pid_t pid, uintptr_t address) {
    char name[32];
    snprintf(name, sizeof name, "/proc/%d/mem", pid);
    int file = open(name, O_RDONLY), right = 0, wrong = 0, refused[2] = {0, 0};
    for (size_t word = 0; word < WORDS; word += 4096) {
        uint64_t found[2] = {0, 0};
        struct iovec here = {&found[1], 8}, there = {(void *)(address + word * 8), 8};
        /* The second one may bring the page to DRAM. */
        ssize_t moved[2] = {pread(file, &found[0], 8, address + word * 8), 0};
        moved[1] = process_vm_readv(pid, &here, 1, &there, 1, 0);
        for (int i = 0; i < 2; i++)
            *(moved[i] != 8 ? &refused[i] : found[i] == expected(word) ? &right : &wrong) += 1;
    }
    printf("mem: %s, process_vm_readv: %s, wrong: %d\n", refused[0] ? "refused" : "right", refused[1] ? "refused" : "right", wrong);
    return right + refused[0] + refused[1] != WORDS / 4096 * 2;
}
static void seen(const char *how, const char *self) {
    if (!strcmp(how, "dumped")) {
        printf("%p\n", (void *)memory);
        fflush(stdout);
        abort();
    }
    char words[2][32];
    snprintf(words[0], sizeof words[0], "%d", getpid());
    snprintf(words[1], sizeof words[1], "%lu", (unsigned long)memory);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    pid_t child;
    int status = -1;
    if (posix_spawn(&child, self, NULL, NULL, (char *[]){(char *)self, "reads", words[0], words[1], NULL}, NULL) == 0)
        waitpid(child, &status, 0);
    printf("%d, wrong: %zu\n", status, wrong());
}

/* ---- mappings ---- */

static void watches(const char *how) {
    int fd = syscall(SYS_userfaultfd, 0);
    struct uffdio_api api = {.api = UFFD_API};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api)) {
        say("none\n");
        return;
    }
    void *place = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register range = {.range = {(uintptr_t)place, MIB}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (!strcmp(how, "small"))
        place = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
        range.range.start = (uintptr_t)place, range.range.len = 65536;
    printf("register: %s\n", ioctl(fd, UFFDIO_REGISTER, &range) ? strerrorname_np(errno) : "done");
    printf("wrong: %zu\n", wrong());
}
static void moved(void) {
    size_t bytes = WORDS * 8, bad = 0;
    uint64_t *old = memory;
    uint64_t *new = mremap(old, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    if (new == MAP_FAILED) {
        printf("moved: %s\n", strerrorname_np(errno));
        return;
    }
    for (size_t word = 0; word < WORDS; word += 512)
        bad += old[word] != 0;
    memory = new;
    printf("moved: %d, wrong: %zu, old not zero: %zu\n", new != old, wrong(), bad);
    old[0] = 7, old[WORDS - 1] = 8;
    printf("old: %d, %d, new: %d\n", (int)old[0], (int)old[WORDS - 1], (int)(new[WORDS - 1] == expected(WORDS - 1)));
    errno = 0;
    void *grown = mremap(new, bytes, bytes + MIB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    printf("grown: %d %s\n", grown == MAP_FAILED, strerrorname_np(errno));
    void *to = mremap(new, MIB, MIB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP | MREMAP_FIXED, old);
    printf("to a place: %d, wrong: %d\n", to == old, old[1] != expected(1) || new[1] != 0);
}

int main(int count, char **words) {
    const char *what = count > 2 ? words[1] : "";
    if (!strcmp(what, "reads") && count > 3)
        return reads(atoi(words[2]), strtoul(words[3], NULL, 10));
    fill();
    if (!strcmp(what, "ends"))
        ends(words[2]);
    else if (!strcmp(what, "confined"))
        confined(words[2]);
    else if (!strcmp(what, "limited"))
        limited(words[2]);
    else if (!strcmp(what, "closed"))
        closed(words[2]);
    else if (!strcmp(what, "seen"))
        seen(words[2], words[0]);
    else if (!strcmp(what, "watches"))
        watches(words[2]);
    else if (!strcmp(what, "moved"))
        moved();
    else
        return 2;
    return 0;
}
