/* Two threads fork, 20 times each, while a third opens, flushes and closes files. A child checks a block and a
 * thread-local variable, and uses a file. Prints how many children found anything wrong. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1 << 20, LOCAL = 3000, FORKS = 20, LIMIT = 60 };

static volatile int ends;
static __thread char local[LOCAL];

static void use_file(void) {
    FILE *file = fopen("/dev/null", "w");
    fprintf(file, "x");
    fclose(file);
}

static void *flush(void *argument) {
    while (!ends) {
        fflush(NULL);
        use_file();
    }
    return argument;
}

static void *work(void *argument) {
    long failed = 0;
    char *block = malloc(BYTES);
    (void)argument;
    memset(block, 3, BYTES);
    memset(local, 4, LOCAL);
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            long wrong = 0;
            alarm(LIMIT);
            for (int at = 0; at < BYTES; at++)
                wrong += block[at] != 3;
            for (int at = 0; at < LOCAL; at++)
                wrong += local[at] != 4;
            use_file();
            _exit(wrong != 0);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        failed += pid < 0 || status != 0;
    }
    free(block);
    return (void *)failed;
}

int main(void) {
    pthread_t flusher, workers[2];
    long failed = 0;
    pthread_create(&flusher, NULL, flush, NULL);
    for (int i = 0; i < 2; i++)
        pthread_create(&workers[i], NULL, work, NULL);
    for (int i = 0; i < 2; i++) {
        void *result;
        pthread_join(workers[i], &result);
        failed += (long)result;
    }
    ends = 1;
    pthread_join(flusher, NULL);
    printf("%ld failed\n", failed);
    return failed != 0;
}
