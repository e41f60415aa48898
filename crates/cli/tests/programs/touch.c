/* Four threads write and check a mapping of N MiB, three times over. What a word must be is a function of its
 * place and round. With a second argument, it first closes all descriptors that it does not know, in four ways. Prints
 * what it found, and returns 1 when a word was wrong. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { THREADS = 4, WORDS = 512, STEP = 64, ROUNDS = 3 };

static uint64_t *memory;
static uint64_t pages;

static uint64_t mixed(uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
}

static void *work(void *argument) {
    uint64_t wrong = 0;
    for (uint64_t round = 1; round <= ROUNDS; round++)
        for (uint64_t page = (uintptr_t)argument; page < pages; page += THREADS)
            for (uint64_t at = page * WORDS; at < (page + 1) * WORDS; at += STEP) {
                wrong += memory[at] != (round == 1 ? 0 : mixed(at + round - 1));
                memory[at] = mixed(at + round);
            }
    return (void *)(uintptr_t)wrong;
}

int main(int count, char **words) {
    uint64_t bytes = strtoull(count > 1 ? words[1] : "1", NULL, 10) << 20, wrong = 0;
    pthread_t threads[THREADS];
    pages = bytes / 4096;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        return 2;
    }
    if (count > 2) {
        for (int fd = 3; fd < 1024; fd++) {
            if (dup2(1, fd) == fd)
                dup3(1, fd, 0);
            close(fd);
        }
        close_range(3, ~0U, 0);
        closefrom(3);
    }
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0)
            return 2;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong += (uintptr_t)result;
    }
    printf("%llu pages, %llu wrong\n", (unsigned long long)pages, (unsigned long long)wrong);
    return wrong != 0;
}
