/* Writes a mapping of N MiB, says so, and holds it until its input ends. Then it checks what it wrote. With a
 * second argument, a child after fork does the same with what it has of it, under the end of the same input. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t at(uint64_t page, uint64_t by) { return (page + by) * 0x9e3779b97f4a7c15ULL; }

/* Writes all pages, and checks them when the input has ended. */
static int hold(uint64_t *memory, uint64_t pages, uint64_t by) {
    uint64_t wrong = 0;
    char byte;
    for (uint64_t page = 0; page < pages; page++)
        memory[page * 512] = at(page, by);
    printf("%d holds\n", (int)getpid());
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    for (uint64_t page = 0; page < pages; page++)
        wrong += memory[page * 512] != at(page, by);
    return wrong != 0;
}

int main(int count, char **words) {
    uint64_t bytes = strtoull(count > 1 ? words[1] : "1", NULL, 10) << 20;
    uint64_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pid_t child = 0;
    int status = 0, wrong;
    if (memory == MAP_FAILED) {
        perror("mmap");
        return 2;
    }
    if (count > 2) {
        child = fork();
        if (child < 0) {
            perror("fork");
            return 2;
        }
        if (child == 0)
            _exit(hold(memory, bytes / 4096, 1));
    }
    wrong = hold(memory, bytes / 4096, 0);
    if (child > 0 && waitpid(child, &status, 0) != child)
        return 2;
    return wrong || status != 0;
}
