/* Children that fork before they do anything else, N times. All run on one processor, so that a thread that was
 * just started has not begun yet. Prints how many children did not end well. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 3000, GENERATIONS = 2, LIMIT = 60 };

static char *memory;

/* Forks a child, which does the same before it looks at the memory. Returns whether it did not end well. */
static int fork_at_once(int generations, char expected) {
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(LIMIT);
        int wrong = generations > 1 && fork_at_once(generations - 1, expected);
        for (int page = 0; page < PAGES; page++)
            wrong += memory[page * PAGE] != expected;
        _exit(wrong != 0);
    }
    return pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
}

int main(int count, char **words) {
    int children = count > 1 ? atoi(words[1]) : 1, failed = 0;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof(one), &one))
        return 2;
    alarm(LIMIT);
    memory = malloc(PAGES * PAGE);
    for (int round = 0; round < children; round++) {
        memset(memory, round, PAGES * PAGE);
        failed += fork_at_once(GENERATIONS, (char)round);
    }
    printf("%d children, %d failed\n", children, failed);
    return failed != 0;
}
