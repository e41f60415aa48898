/* Two threads allocate, resize, check and free blocks of 1 byte to 2 MiB, about 128 MiB at a time. Then the other frees
 * what is left. Each word of a block is a function of its block and place. Prints what it did. Returns 1 when a word was
 * wrong, and 3 when there is no memory. */
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BLOCKS = 96, STEPS = 400, EACH = 1024 };

struct side {
    unsigned char *blocks[BLOCKS];
    size_t sizes[BLOCKS];
    uint64_t seed, wrong, all;
    struct side *other;
};

static uint64_t next(uint64_t *seed) {
    *seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return *seed >> 33;
}

static unsigned char expected(size_t block, size_t at) { return (unsigned char)(block * 31 + at / EACH * 7 + 1); }

static void fill(struct side *side, size_t block, size_t from) {
    for (size_t at = (from + EACH - 1) / EACH * EACH; at < side->sizes[block]; at += EACH)
        side->blocks[block][at] = expected(block, at);
}

static void check(struct side *side, size_t block, size_t to) {
    for (size_t at = 0; at < to && at < side->sizes[block]; at += EACH)
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

static void *work(void *argument) {
    struct side *side = argument;
    for (int step = 0; step < STEPS; step++) {
        size_t block = next(&side->seed) % BLOCKS;
        size_t size = 1 + next(&side->seed) % (next(&side->seed) % 4 ? 2 << 20 : 4096), old = side->sizes[block];
        side->all += size;
        if (side->blocks[block] == NULL) {
            void *made_block = NULL;
            switch (next(&side->seed) % 4) {
            case 0:
                made_block = malloc(size);
                break;
            case 1:
                made_block = calloc(size, 1);
                for (size_t at = 0; made_block != NULL && at < size; at += EACH)
                    side->wrong += ((unsigned char *)made_block)[at] != 0;
                break;
            case 2:
                side->wrong += posix_memalign(&made_block, 64, size) != 0 || (uintptr_t)made_block % 64 != 0;
                break;
            default:
                made_block = memalign(8192, size);
                side->wrong += (uintptr_t)made_block % 8192 != 0;
            }
            side->blocks[block] = made(made_block);
            side->wrong += malloc_usable_size(made_block) < size;
            side->sizes[block] = size;
            fill(side, block, 0);
        } else if (next(&side->seed) % 2) {
            check(side, block, old);
            side->blocks[block] = made(realloc(side->blocks[block], size));
            side->sizes[block] = size;
            check(side, block, old);
            fill(side, block, 0);
        } else {
            check(side, block, old);
            free(side->blocks[block]);
            side->blocks[block] = NULL;
        }
    }
    return NULL;
}

static void *end(void *argument) {
    struct side *side = argument, *other = side->other;
    for (size_t block = 0; block < BLOCKS; block++) {
        if (other->blocks[block] != NULL)
            check(other, block, other->sizes[block]);
        free(other->blocks[block]);
    }
    return NULL;
}

int main(void) {
    struct side *one = calloc(2, sizeof *one), *two = one + 1;
    pthread_t threads[2];
    *one = (struct side){.seed = 1, .other = two};
    *two = (struct side){.seed = 2, .other = one};
    void *(*const parts[])(void *) = {work, end};
    for (int part = 0; part < 2; part++) {
        pthread_create(&threads[0], NULL, parts[part], one);
        pthread_create(&threads[1], NULL, parts[part], two);
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
    }
    printf("%llu bytes, %llu wrong\n", (unsigned long long)(one->all + two->all),
           (unsigned long long)(one->wrong + two->wrong));
    return one->wrong + two->wrong != 0;
}
