/* Threads read pages that have left DRAM, and end, while the main thread forks, N times. One thread of each round
 * is cancelled, and ends only where it asks for that, if it has not ended before. A child reads some of the pages
 * itself. Prints how many children failed, how many pages were wrong, and how many threads did not end as they
 * should. */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 5000, READS = 400, THREADS = 4, LIMIT = 60 };

static char *memory;

static uint64_t expected(size_t page) { return (page + 1) * 0x9e3779b97f4a7c15ULL; }
static uint64_t *word(size_t page) { return (uint64_t *)(memory + page * PAGE + page % 512 * 8); }

static long wrong_of(size_t reads, uint64_t seed) {
    long wrong = 0;
    for (size_t i = 0; i < reads; i++) {
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        size_t page = (seed >> 33) % PAGES;
        wrong += *word(page) != expected(page);
    }
    return wrong;
}

struct Reader {
    pthread_t thread;
    uint64_t seed;
    long wrong, has_read;
    volatile int has_begun;
};

static void *reads(void *argument) {
    struct Reader *reader = argument;
    reader->has_begun = 1;
    reader->wrong = wrong_of(READS, reader->seed);
    reader->has_read = 1;
    pthread_testcancel();
    return NULL;
}

int main(int count, char **words) {
    int rounds = count > 1 ? atoi(words[1]) : 1, failed = 0, odd = 0;
    long wrong = 0;
    struct Reader readers[THREADS];
    alarm(LIMIT);
    memory = malloc((size_t)PAGES * PAGE);
    for (size_t page = 0; page < PAGES; page++)
        *word(page) = expected(page);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < THREADS; i++) {
            readers[i] = (struct Reader){.seed = round * THREADS + i};
            if (pthread_create(&readers[i].thread, NULL, reads, &readers[i]))
                return 2;
        }
        while (!readers[0].has_begun)
            sched_yield();
        pthread_cancel(readers[0].thread);
        usleep(1000 * (round % 4));
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) {
            alarm(LIMIT);
            _exit(wrong_of(READS, round) != 0);
        }
        for (int i = 0; i < THREADS; i++) {
            void *result;
            pthread_join(readers[i].thread, &result);
            odd += !readers[i].has_read || (i > 0 && result != NULL);
            wrong += readers[i].wrong;
        }
        failed += pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
    }
    printf("%d children, %d failed, %ld wrong, %d odd\n", rounds, failed, wrong, odd);
    return failed || wrong || odd;
}
