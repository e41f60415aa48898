/* Two threads allocate and free blocks while the main thread forks, N times. With "free", a child only frees a
 * block. Else it finds all blocks as they were at the fork, changes and frees half of them, allocates others, and forks
 * once itself, while the parent changes its own. Prints how many children found anything wrong. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 40, WORDS = 256 << 10 >> 3, STEP = 128, LIMIT = 100 };

static uint64_t *blocks[BLOCKS];
static volatile int ends;

static uint64_t expected(int block, size_t word, uint64_t round) {
    return (round << 40 | (uint64_t)block << 32 | word) * 0x9e3779b97f4a7c15ULL;
}
static void fill(int block, uint64_t round) {
    for (size_t word = 0; word < WORDS; word += STEP)
        blocks[block][word] = expected(block, word, round);
}
static uint64_t wrong_of(int block, uint64_t round) {
    uint64_t wrong = 0;
    for (size_t word = 0; word < WORDS; word += STEP)
        wrong += blocks[block][word] != expected(block, word, round);
    return wrong;
}

static void *churn(void *argument) {
    (void)argument;
    while (!ends) {
        char *block = malloc(200 << 10);
        memset(block, 1, 5000);
        free(block);
    }
    return NULL;
}

/* All blocks are of `round`. Returns what is wrong. */
static uint64_t child(uint64_t round, int depth) {
    uint64_t wrong = 0;
    int status = 0;
    for (int block = 0; block < BLOCKS; block++)
        wrong += wrong_of(block, round);
    for (int block = 0; block < BLOCKS; block += 2)
        fill(block, round + 1000);
    pid_t grandchild = depth > 0 ? fork() : 0;
    if (depth > 0 && grandchild == 0) {
        for (int block = 0; block < BLOCKS; block++)
            wrong += wrong_of(block, block % 2 ? round : round + 1000);
        _exit(wrong != 0);
    }
    for (int block = 0; block < BLOCKS; block += 4) {
        wrong += wrong_of(block, round + 1000);
        free(blocks[block]);
        blocks[block] = calloc(WORDS, sizeof(uint64_t));
        for (size_t word = 0; word < WORDS; word += STEP)
            wrong += blocks[block][word] != 0;
    }
    if (depth > 0)
        wrong += waitpid(grandchild, &status, 0) != grandchild || status != 0;
    for (int block = 1; block < BLOCKS; block += 2)
        wrong += wrong_of(block, round);
    return wrong;
}

int main(int count, char **words) {
    int children = count > 1 ? atoi(words[1]) : 1, frees = count > 2, failed = 0;
    pthread_t threads[2];
    for (int block = 0; block < BLOCKS; block++) {
        blocks[block] = malloc(WORDS * sizeof(uint64_t));
        fill(block, 0);
    }
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, churn, NULL);
    for (int round = 0; round < children; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(LIMIT);
            if (frees)
                free(blocks[round % BLOCKS]);
            _exit(!frees && child(round, round % 2) != 0);
        }
        if (pid < 0) {
            perror("fork");
            return 2;
        }
        int status = 0;
        if (!frees)
            for (int block = 0; block < BLOCKS; block++)
                fill(block, round + 1);
        waitpid(pid, &status, 0);
        failed += status != 0;
        if (WIFSIGNALED(status))
            printf("a child was ended by signal %d\n", WTERMSIG(status));
    }
    ends = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    uint64_t wrong = 0;
    for (int block = 0; block < BLOCKS; block++)
        wrong += wrong_of(block, frees ? 0 : children);
    printf("%d children, %d failed, %llu wrong\n", children, failed, (unsigned long long)wrong);
    return failed != 0 || wrong != 0;
}
