/* A signal comes between any two instructions of malloc and its relatives, and its handler touches memory that has left
 * DRAM. So a fault is resolved at each step of an allocator, whatever it holds there. The first argument is "trace", how
 * many steps are left out between two signals, and how many at the begin. The program and its arguments follow, which
 * this one starts and stops after each instruction of its first thread. That program is this one, with "allocate".
 * Prints what was wrong, and whether there were many signals. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 8192, PIECE = 16 * 1024 };

/* ---- the one that is stopped ---- */

static unsigned char *memory;
static uint64_t state = 1;
static volatile size_t wrong;

static unsigned char expected(size_t page) { return (unsigned char)(page * 7 + 1); }
static void touches(int number) {
    (void)number;
    for (int i = 0; i < 2; i++) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        size_t page = (state >> 33) % PAGES;
        wrong += memory[page * PAGE + 9] != expected(page);
        memory[page * PAGE + 10]++;
    }
    /* The other one waits for this. */
    __asm__ volatile("int3");
}
static void check(const unsigned char *block, size_t bytes, unsigned char value) {
    for (size_t at = 0; at < bytes; at += 512)
        wrong += block[at] != value;
}
static int allocate(void) {
    struct sigaction action = {0};
    void *aligned = NULL;
    memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t page = 0; page < PAGES; page++)
        memory[page * PAGE + 9] = expected(page);
    action.sa_handler = touches;
    sigaction(SIGUSR1, &action, NULL);
    /* What is looked for once is found. The compiler must not do without. */
    void *(*volatile any_malloc)(size_t) = malloc, *(*volatile any_calloc)(size_t, size_t) = calloc;
    free(any_malloc(PIECE)), free(any_malloc(300)), free(any_calloc(1, PIECE)), free(realloc(any_malloc(300), 600));
    wrong += malloc_usable_size(NULL);

    raise(SIGUSR2);
    unsigned char *one = any_malloc(PIECE), *two = any_malloc(300);
    unsigned char *three = any_calloc(PIECE / 8, 8), *four = any_malloc(3000);
    raise(SIGUSR2);
    memset(one, 1, PIECE), memset(two, 2, 300), check(three, PIECE, 0), memset(four, 4, 3000);
    raise(SIGUSR2);
    one = realloc(one, 2 * PIECE), two = realloc(two, 700), four = realloc(four, PIECE);
    wrong += malloc_usable_size(one) < 2 * PIECE;
    wrong += posix_memalign(&aligned, 2 * PAGE, PIECE) != 0;
    free(three);
    raise(SIGUSR2);
    check(one, PIECE, 1), check(two, 300, 2), check(four, 3000, 4), memset(aligned, 5, PIECE);
    raise(SIGUSR2);
    void *mapped = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    wrong += mapped == MAP_FAILED || mprotect(mapped, PAGE, PROT_READ) || madvise(mapped, PAGE, MADV_DONTNEED);
    wrong += munmap(mapped, PIECE) != 0;
    free(one), free(two), free(four), free(aligned);
    raise(SIGUSR2);
    for (size_t page = 0; page < PAGES; page++)
        wrong += memory[page * PAGE + 9] != expected(page);
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}

/* ---- the one that stops it ---- */

static pid_t pid;
static void late(int number) {
    (void)number;
    kill(pid, SIGKILL);
    (void)!write(1, "hangs\n", 6);
    _exit(3);
}
static void signal_late(void) {
    struct sigaction action = {0};
    action.sa_handler = late;
    sigaction(SIGALRM, &action, NULL);
    alarm(100);
}
/* Lets it go on, with a signal or none, until it stops again. Returns the signal of that; 0 when it has ended. */
static int until(enum __ptrace_request how, int with, int *status) {
    if (ptrace(how, pid, NULL, (void *)(intptr_t)with)) {
        perror("ptrace");
        kill(pid, SIGKILL);
        _exit(4);
    }
    waitpid(pid, status, 0);
    return WIFSTOPPED(*status) ? WSTOPSIG(*status) : 0;
}
static int takes(int number) {
    uint64_t blocked = 0;
    ptrace(PTRACE_GETSIGMASK, pid, sizeof blocked, &blocked);
    return !(blocked >> (number - 1) & 1);
}
static int trace(size_t left_out, size_t at_begin, char **words) {
    int status = 0, is_stepped = 0, signal;
    size_t steps = 0, signals = 0;
    struct user_regs_struct before = {0}, now;
    if ((pid = fork()) == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL)) {
            puts("no tracing");
            fflush(stdout);
            _exit(5);
        }
        execvp(words[0], words);
        _exit(6);
    }
    signal_late();
    waitpid(pid, &status, 0);
    signal = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
    while (signal) {
        if (signal == SIGUSR2)
            is_stepped = !is_stepped, signal = 0;
        if (signal == SIGTRAP)
            signal = 0;
        if (!is_stepped) {
            signal = until(PTRACE_CONT, signal, &status);
            continue;
        }
        if (signal == 0 && ++steps % (left_out + 1) == at_begin % (left_out + 1) && takes(SIGUSR1)) {
            ptrace(PTRACE_GETREGS, pid, NULL, &before);
            signals++;
            /* Its handler, at full speed. */
            for (signal = until(PTRACE_CONT, SIGUSR1, &status); signal && signal != SIGTRAP;) {
                /* The end of what is stepped through was on its way. */
                if (signal == SIGUSR2)
                    is_stepped = 0, signal = 0;
                signal = until(PTRACE_CONT, signal, &status);
            }
            /* And back to where it was. */
            do {
                if (signal)
                    signal = until(PTRACE_SINGLESTEP, 0, &status);
                if (signal == 0)
                    goto ended;
                if (signal == SIGUSR2)
                    is_stepped = 0;
                ptrace(PTRACE_GETREGS, pid, NULL, &now);
            } while (now.rip != before.rip || now.rsp != before.rsp);
            signal = 0;
        }
        signal = until(is_stepped ? PTRACE_SINGLESTEP : PTRACE_CONT, signal, &status);
    }
ended:
    fprintf(stderr, "%zu steps, %zu signals\n", steps, signals);
    if (WIFSIGNALED(status))
        fprintf(stderr, "ended by SIG%s, after a signal at %#llx\n", sigabbrev_np(WTERMSIG(status)), before.rip);
    printf("many: %d\n", signals > 300);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 7;
}

int main(int count, char **words) {
    if (count > 4 && strcmp(words[1], "trace") == 0)
        return trace(strtoull(words[2], NULL, 10), strtoull(words[3], NULL, 10), words + 4);
    return allocate();
}
