/* Two threads allocate, resize, check and free blocks of 1 to 4082 bytes, about N MiB at a time. What a byte must
 * be is a function of its block and place. Blocks go through a pipe as well. The other thread frees what is left. Prints
 * what it found, and what fork says. With a second argument, it frees a block twice then. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 4082, AVERAGE = 512 };

struct side {
    unsigned char **blocks;
    uint16_t *sizes;
    size_t count;
    uint64_t seed, wrong;
    struct side *other;
};

static uint64_t next(uint64_t *seed) {
    *seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return *seed >> 33;
}

static unsigned char expected(size_t block, size_t at) { return (unsigned char)(block * 31 + at * 7 + 1); }

static void fill(struct side *side, size_t block, size_t from) {
    for (size_t at = from; at < side->sizes[block]; at++)
        side->blocks[block][at] = expected(block, at);
}

static void check(struct side *side, size_t block, size_t to) {
    for (size_t at = 0; at < to && at < side->sizes[block]; at++)
        side->wrong += side->blocks[block][at] != expected(block, at);
}

static void *made(void *block) {
    if (block == NULL) {
        puts("no memory");
        fflush(stdout);
        _exit(3);
    }
    return block;
}

/* Most blocks are some hundred bytes long. */
static size_t any_size(uint64_t *seed) {
    switch (next(seed) % 8) {
    case 0:
        return 1 + next(seed) % MOST;
    case 1:
        return 1 + next(seed) % 100;
    default:
        return 200 + next(seed) % 300;
    }
}

static void *make(struct side *side, size_t size) {
    unsigned char *block;
    switch (next(&side->seed) % 4) {
    case 0:
        block = made(calloc(size, 1));
        for (size_t at = 0; at < size; at++)
            side->wrong += block[at] != 0;
        return block;
    case 1:
        block = made(memalign(256, size));
        side->wrong += (uintptr_t)block % 256 != 0;
        return block;
    default:
        return made(malloc(size));
    }
}

static void *work(void *argument) {
    struct side *side = argument;
    int ends[2];
    side->wrong += pipe(ends) != 0;
    for (size_t step = 0; step < 3 * side->count; step++) {
        size_t block = step < side->count ? step : next(&side->seed) % side->count;
        size_t size = any_size(&side->seed), old = side->sizes[block];
        if (side->blocks[block] == NULL) {
            side->blocks[block] = make(side, size);
            side->wrong += malloc_usable_size(side->blocks[block]) < size;
            side->sizes[block] = (uint16_t)size;
            fill(side, block, 0);
        } else if (step % 5 == 0) {
            side->blocks[block] = made(realloc(side->blocks[block], size));
            side->sizes[block] = (uint16_t)size;
            check(side, block, old);
            fill(side, block, old);
        } else if (step % 5 == 1) {
            check(side, block, old);
            free(side->blocks[block]);
            side->blocks[block] = NULL;
        } else if (step % 5 == 2) {
            /* The kernel reads it, and writes it. */
            side->wrong += write(ends[1], side->blocks[block], old) != (ssize_t)old;
            memset(side->blocks[block], 0, old);
            side->wrong += read(ends[0], side->blocks[block], old) != (ssize_t)old;
        } else {
            check(side, block, old);
        }
    }
    close(ends[0]);
    close(ends[1]);
    return NULL;
}

static void *end(void *argument) {
    struct side *side = argument, *other = side->other;
    for (size_t block = 0; block < other->count; block++) {
        if (other->blocks[block] != NULL)
            check(other, block, other->sizes[block]);
        free(other->blocks[block]);
    }
    return NULL;
}

int main(int count, char **words) {
    size_t each = (strtoull(count > 1 ? words[1] : "1", NULL, 10) << 20) / AVERAGE / 2;
    struct side sides[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        sides[i] = (struct side){.blocks = calloc(each, sizeof(void *)),
                                 .sizes = calloc(each, sizeof(uint16_t)),
                                 .count = each,
                                 .seed = (uint64_t)i + 1,
                                 .other = &sides[1 - i]};
    void *(*const parts[])(void *) = {work, end};
    for (int part = 0; part < 2; part++) {
        for (int i = 0; i < 2; i++)
            if (pthread_create(&threads[i], NULL, parts[part], &sides[i]) != 0)
                return 2;
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
    }
    printf("%zu blocks, %llu wrong\n", 2 * each, (unsigned long long)(sides[0].wrong + sides[1].wrong));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    printf("fork: %s\n", child > 0 ? "a child" : strerror(errno));
    if (child > 0)
        waitpid(child, NULL, 0);
    /* A child by vfork shares all memory. */
    char *argument = strcpy(made(malloc(300)), "exit 7");
    int status = system(argument);
    printf("system: %d\n", WEXITSTATUS(status));
    fflush(stdout);
    for (int times = 0; count > 2 && times < 2; times++)
        free(argument);
    return sides[0].wrong + sides[1].wrong != 0;
}
