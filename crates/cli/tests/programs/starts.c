/* Threads start and end others and ask for the action of a signal without a pause, while the main thread forks N
 * times. Each child does the same once. Prints how many children did not end well. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STARTERS = 2, LIMIT = 60, LARGE = 1 << 20 };

static volatile int ends;

static void *nothing(void *argument) { return argument; }
static int start(void) {
    pthread_t thread;
    return pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL);
}
static int ask(void) {
    struct sigaction action;
    return sigaction(SIGSEGV, NULL, &action) || sigaction(SIGBUS, NULL, &action);
}
static void *starts(void *argument) {
    while (!ends)
        start();
    return argument;
}
static void *asks(void *argument) {
    while (!ends)
        ask();
    return argument;
}

int main(int count, char **words) {
    int children = count > 1 ? atoi(words[1]) : 1, failed = 0;
    pthread_t threads[STARTERS + 1];
    char *memory = malloc(LARGE);
    memset(memory, 5, LARGE);
    for (int i = 0; i <= STARTERS; i++)
        if (pthread_create(&threads[i], NULL, i < STARTERS ? starts : asks, NULL))
            return 2;
    for (int round = 0; round < children; round++) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) {
            alarm(LIMIT);
            _exit(start() || ask() || memory[round * 4096 % LARGE] != 5);
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
            failed++;
    }
    ends = 1;
    for (int i = 0; i <= STARTERS; i++)
        pthread_join(threads[i], NULL);
    printf("%d children, %d failed\n", children, failed);
    return failed != 0;
}
