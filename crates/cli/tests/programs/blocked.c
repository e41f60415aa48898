/* Threads wait in system calls that were given memory of their own, while the main thread forks. Neither the fork nor the
 * child waits for them: the child frees and allocates such memory, and forks once itself. Memory that is unmapped during a
 * call ends it with EFAULT. Prints how much was wrong, and whether all forks were quick. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 8, BLOCK = 200 << 10, READ = 100 << 10, SENT = 5000, OTHER = 24 << 20, PAGE = 4096, LIMIT = 100, QUICK = 5 };

static struct waiter {
    pthread_t thread;
    int fds[2];
    char *block;
    long got;
} waiters[THREADS];
static sem_t *semaphore;
static uint64_t *other;
static volatile int slow;

static void fill(uint64_t round) {
    for (size_t at = 0; at < OTHER / 8; at += PAGE / 8)
        other[at] = at * 0x9e3779b97f4a7c15ULL + round;
}
static uint64_t wrong_of(uint64_t round) {
    uint64_t wrong = 0;
    for (size_t at = 0; at < OTHER / 8; at += PAGE / 8)
        wrong += other[at] != at * 0x9e3779b97f4a7c15ULL + round;
    return wrong;
}
static char sent(int index, size_t at) { return (char)(index * 31 + at * 7 + at / 251); }

static void *reads(void *argument) {
    struct waiter *waiter = argument;
    waiter->got = read(waiter->fds[0], waiter->block, READ);
    if (waiter->got < 0)
        waiter->got = -errno;
    return NULL;
}
static void *waits(void *argument) {
    (void)argument;
    sem_wait(semaphore);
    return NULL;
}
static pid_t forks(void) {
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    pid_t pid = fork();
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (end.tv_sec - begin.tv_sec >= QUICK)
        slow = 1;
    if (pid < 0)
        perror("fork");
    return pid;
}

static int child(void) {
    uint64_t wrong = wrong_of(1);
    int status = 0;
    alarm(LIMIT);
    for (int i = 0; i < THREADS; i++)
        free(waiters[i].block);
    for (int i = 0; i < THREADS; i++) {
        waiters[i].block = calloc(1, BLOCK);
        for (size_t at = 0; at < BLOCK; at += PAGE)
            wrong += waiters[i].block[at] != 0;
        memset(waiters[i].block, i + 1, BLOCK);
    }
    fill(2);
    pid_t pid = forks();
    if (pid == 0) {
        for (int i = 0; i < THREADS; i++)
            wrong += waiters[i].block[BLOCK - 1] != i + 1;
        _exit(wrong + wrong_of(2) != 0);
    }
    wrong += pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
    return wrong + wrong_of(2) != 0 || slow;
}

int main(void) {
    uint64_t wrong = 0;
    int status = 0;
    pthread_t waiting;
    other = malloc(OTHER);
    fill(0);
    semaphore = malloc(BLOCK);
    sem_init(semaphore, 0, 0);
    for (int i = 0; i < THREADS; i++) {
        waiters[i].block = malloc(BLOCK);
        if (pipe(waiters[i].fds) || pthread_create(&waiters[i].thread, NULL, reads, &waiters[i]))
            return 2;
    }
    if (pthread_create(&waiting, NULL, waits, NULL))
        return 2;
    usleep(200000);
    /* What they wait with stays, and all other frames are used. */
    fill(1);
    pid_t pid = forks();
    if (pid == 0)
        _exit(child());
    wrong += wrong_of(1);
    wrong += pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
    /* The last of them loses its memory. */
    struct waiter *last = &waiters[THREADS - 1];
    alarm(LIMIT);
    free(last->block);
    for (int i = 0; i < THREADS; i++) {
        char bytes[SENT];
        for (size_t at = 0; at < SENT; at++)
            bytes[at] = sent(i, at);
        wrong += write(waiters[i].fds[1], bytes, SENT) != SENT;
        pthread_join(waiters[i].thread, NULL);
        if (&waiters[i] == last) {
            wrong += last->got != -EFAULT;
            continue;
        }
        wrong += waiters[i].got != SENT;
        for (size_t at = 0; at < SENT; at++)
            wrong += waiters[i].block[at] != sent(i, at);
    }
    sem_post(semaphore);
    pthread_join(waiting, NULL);
    fill(3);
    wrong += wrong_of(3);
    printf("%llu wrong, %s\n", (unsigned long long)wrong, slow ? "slow" : "quick");
    return wrong != 0 || slow;
}
