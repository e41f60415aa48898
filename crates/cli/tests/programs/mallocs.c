/* What malloc and its relatives promise, after the suites of musl (libc-test), jemalloc (test/integration) and mimalloc
 * (test-api, test-stress). Each line of the output is one of their subjects, and how many of its checks were wrong. So it
 * is the same with any allocator. Argument: MiB that two threads have at a time. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096, MANY = 400 };

static size_t checks, wrong;
/* The compiler knows nothing of these. */
static void *(*volatile any_malloc)(size_t) = malloc;
static void *(*volatile any_calloc)(size_t, size_t) = calloc;
static void *(*volatile any_realloc)(void *, size_t) = realloc;
static void *(*volatile any_reallocarray)(void *, size_t, size_t) = reallocarray;
static void *(*volatile any_memalign)(size_t, size_t) = memalign;
static void *(*volatile any_aligned_alloc)(size_t, size_t) = aligned_alloc;
static int (*volatile any_posix_memalign)(void **, size_t, size_t) = posix_memalign;
static void (*volatile any_free)(void *) = free;

static void is(int right) { checks++, wrong += !right; }
static void tell(const char *what) {
    printf("%s: %zu checks, %zu wrong\n", what, checks, wrong);
    checks = wrong = 0;
}
static uint64_t next(uint64_t *state) {
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return *state >> 33;
}
static void *made(void *block) {
    if (block == NULL) {
        puts("no memory");
        fflush(stdout);
        _exit(3);
    }
    return block;
}
/* What a block of some number holds. */
static unsigned char expected(size_t number, size_t at) { return (unsigned char)(number * 31 + at * 7 + 1); }
static size_t step_of(size_t bytes) { return bytes < 2 * PAGE ? 1 : 509; }
static void fill(unsigned char *block, size_t from, size_t bytes, size_t number) {
    size_t step = step_of(bytes);
    for (size_t at = (from + step - 1) / step * step; at < bytes; at += step)
        block[at] = expected(number, at);
    if (bytes > from)
        block[bytes - 1] = expected(number, bytes - 1);
}
static size_t wrong_of(const unsigned char *block, size_t bytes, size_t of, size_t number) {
    size_t found = 0, step = step_of(of);
    for (size_t at = 0; at < bytes; at += step)
        found += block[at] != expected(number, at);
    return found;
}

/* ---- sizes ---- */

static void nothing(void) {
    void *blocks[8] = {any_malloc(0), any_malloc(0), any_calloc(0, 8), any_calloc(8, 0), any_realloc(NULL, 0), any_memalign(64, 0)};
    is(any_posix_memalign(&blocks[6], 64, 0) == 0);
    blocks[7] = any_reallocarray(NULL, 1, 1);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < i; j++)
            is(blocks[i] == NULL || blocks[i] != blocks[j]);
    is(blocks[0] != NULL && blocks[2] != NULL && blocks[4] != NULL);
    for (int i = 0; i < 8; i++)
        any_free(blocks[i]);
    any_free(NULL);
    is(malloc_usable_size(NULL) == 0);
    tell("nothing");
}
static void refused(void *block) {
    /* Not all of them say why. */
    is(block == NULL && (errno == ENOMEM || errno == 0));
    any_free(block);
    errno = 0;
}
static void too_much(void) {
    const size_t most[] = {SIZE_MAX, SIZE_MAX - PAGE, SIZE_MAX / 2 + 1, (size_t)PTRDIFF_MAX + 1, SIZE_MAX - 15, (size_t)1 << 60};
    unsigned char *kept = made(any_malloc(100)), *large = made(any_malloc(300000));
    void *untouched = kept;
    fill(kept, 0, 100, 1), fill(large, 0, 300000, 2);
    errno = 0;
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        refused(any_malloc(most[i]));
        refused(any_calloc(most[i], 1));
        refused(any_calloc(1, most[i]));
        refused(any_realloc(NULL, most[i]));
        refused(any_realloc(kept, most[i]));
        refused(any_realloc(large, most[i]));
        refused(any_memalign(64, most[i]));
        refused(any_memalign(2 * PAGE, most[i]));
        is(any_posix_memalign(&untouched, 4 * PAGE, most[i]) == ENOMEM && untouched == kept);
        errno = 0;
    }
    refused(any_calloc(SIZE_MAX / 2 + 1, 2));
    refused(any_calloc((size_t)1 << 33, (size_t)1 << 33));
    refused(any_calloc(SIZE_MAX / 16 + 1, 16));
    refused(any_reallocarray(kept, SIZE_MAX / 2 + 1, 2));
    refused(any_reallocarray(large, SIZE_MAX / 300 + 1, 300));
    is(wrong_of(kept, 100, 100, 1) == 0 && wrong_of(large, 300000, 300000, 2) == 0);
    any_free(kept), any_free(large);
    tell("too much");
}

/* ---- alignment ---- */

static void alignments(void) {
    void *block = (void *)16;
    const size_t bad[] = {0, 1, 2, 3, 4, 7, 12, 24, 48, 100, PAGE + 8};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        is(any_posix_memalign(&block, bad[i], 64) == EINVAL && block == (void *)16);
    for (size_t bytes = 16; bytes < 70000; bytes += bytes / 4 + 1) {
        block = made(any_malloc(bytes));
        is((uintptr_t)block % 16 == 0);
        any_free(block);
    }
    unsigned char *kept[3 * 18 * 5];
    size_t sizes[3 * 18 * 5], count = 0;
    for (size_t alignment = 8; alignment <= (size_t)1 << 20; alignment *= 2) {
        const size_t each[5] = {1, alignment - 1, alignment, alignment + 1, 3 * alignment + 7};
        for (int i = 0; i < 5; i++) {
            /* Some of the largest ones: they take that much of the addresses. */
            if (alignment > 1 << 17 && i > 2)
                continue;
            size_t bytes = each[i];
            is(any_posix_memalign(&block, alignment, bytes) == 0);
            unsigned char *all[3] = {block, any_memalign(alignment, bytes), any_aligned_alloc(alignment, bytes)};
            for (int which = 0; which < 3; which++) {
                made(all[which]);
                is((uintptr_t)all[which] % alignment == 0 && malloc_usable_size(all[which]) >= bytes);
                fill(all[which], 0, bytes, count);
                kept[count] = all[which], sizes[count++] = bytes;
            }
        }
    }
    for (size_t i = 0; i < count; i++)
        is(wrong_of(kept[i], sizes[i], sizes[i], i) == 0);
    for (size_t i = 0; i < count; i++) {
        if (i % 3 == 0) {
            unsigned char *moved = made(any_realloc(kept[i], sizes[i] + 1000));
            is(wrong_of(moved, sizes[i], sizes[i], i) == 0);
            kept[i] = moved;
        }
        any_free(kept[i]);
    }
    block = made(valloc(100)), is((uintptr_t)block % PAGE == 0), any_free(block);
    tell("alignments");
}

/* ---- what can be used is the program's ---- */

static void usable(void) {
    unsigned char *blocks[MANY];
    size_t sizes[MANY];
    for (size_t i = 0; i < MANY; i++) {
        size_t bytes = i < 200 ? i + 1 : (i - 199) * (i - 199) * 3;
        blocks[i] = made(any_malloc(bytes));
        sizes[i] = malloc_usable_size(blocks[i]);
        is(sizes[i] >= bytes);
        fill(blocks[i], 0, sizes[i], i);
    }
    for (size_t i = 0; i < MANY; i++) {
        is(wrong_of(blocks[i], sizes[i], sizes[i], i) == 0);
        any_free(blocks[i]);
    }
    tell("usable");
}

/* ---- other sizes ---- */

static void resizes(void) {
    for (size_t most = 3; most < (size_t)3 << 20; most = most * 5 + 3) {
        unsigned char *block = NULL;
        size_t had = 0;
        for (size_t bytes = 1; bytes < most; bytes = bytes * 7 / 4 + 1) {
            block = made(any_realloc(block, bytes));
            for (size_t at = 0; at < had; at += step_of(had))
                is(block[at] == expected(most, at));
            for (size_t at = 0; at < bytes; at += step_of(bytes))
                block[at] = expected(most, at);
            had = bytes;
        }
        for (size_t bytes = had; bytes > 0; bytes = bytes * 3 / 8) {
            block = made(any_realloc(block, bytes));
            for (size_t at = 0; at < bytes; at += step_of(had))
                is(block[at] == expected(most, at));
        }
        any_free(block);
    }
    unsigned char *same = made(any_malloc(5000));
    fill(same, 0, 5000, 9);
    for (int i = 0; i < 50; i++)
        same = made(any_realloc(same, 5000));
    is(wrong_of(same, 5000, 5000, 9) == 0);
    same = made(any_reallocarray(same, 500, 100));
    is(wrong_of(same, 5000, 5000, 9) == 0);
    any_free(same);
    tell("resizes");
}

/* ---- zeros ---- */

static void zeros(void) {
    void *blocks[MANY];
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < MANY; i++) {
            size_t bytes = 1 + i * i / 3 * (size_t)(round + 1);
            memset(blocks[i] = made(any_malloc(bytes)), 0xEE, bytes);
        }
        for (size_t i = 0; i < MANY; i++)
            any_free(blocks[i]);
        for (size_t i = 0; i < MANY; i++) {
            size_t bytes = 1 + i * i / 3 * (size_t)(round + 1), found = 0;
            unsigned char *block = blocks[i] = made(any_calloc(1, bytes));
            for (size_t at = 0; at < bytes; at++)
                found += block[at] != 0;
            is(found == 0);
        }
        for (size_t i = 0; i < MANY; i++)
            any_free(blocks[i]);
    }
    tell("zeros");
}

/* ---- errno ---- */

static void errors(void) {
    const size_t sizes[] = {0, 1, 24, 200, 4000, 5000, 40000, 200000, 3000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *block = made(any_malloc(sizes[i]));
        errno = EDOM;
        any_free(block);
        is(errno == EDOM);
        block = made(any_memalign(PAGE, sizes[i]));
        errno = EDOM;
        any_free(block);
        is(errno == EDOM);
    }
    errno = EDOM;
    any_free(NULL);
    is(errno == EDOM);
    tell("errors");
}

/* ---- blocks that the C library makes, and the program frees; and the other way round ---- */

static int before(const void *one, const void *other) { return memcmp(one, other, 600); }
static void library(void) {
    char *text = made(strdup("some words")), *part = made(strndup(text, 4)), *line = NULL, *all = NULL;
    is(strcmp(part, "some") == 0);
    is(asprintf(&all, "%s and %0400d", text, 7) == 415);
    size_t room = 0, length = 0;
    FILE *file = tmpfile();
    for (int i = 0; i < 300; i++)
        fprintf(file, "%0*d\n", i * 7 + 1, i);
    rewind(file);
    /* Its buffer is the program's at first, and grows. */
    line = made(any_malloc(2)), room = 2;
    for (int i = 0; i < 300; i++)
        is(getline(&line, &room, file) == i * 7 + 2 && atoi(line) == i);
    fclose(file);
    char *stream = NULL;
    file = open_memstream(&stream, &length);
    for (int i = 0; i < 5000; i++)
        fprintf(file, "%d,", i);
    fclose(file);
    is(length == 23890 && strlen(stream) == length);
    char *here = made(realpath("/usr/..", NULL)), *where = getcwd(NULL, 0);
    is(strcmp(here, "/") == 0 && where != NULL);
    struct dirent **entries = NULL;
    int found = scandir("/", &entries, NULL, alphasort);
    is(found > 2);
    for (int i = 0; i < found; i++)
        any_free(entries[i]);
    any_free(entries);
    char *own[] = {text, part, line, all, stream, here, where};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        any_free(own[i]);
    /* Of that many bytes it sorts in a block of its own. */
    uint64_t state = 5;
    unsigned char *rows = made(any_malloc(400 * 600));
    for (size_t i = 0; i < 400 * 600; i++)
        rows[i] = (unsigned char)next(&state);
    qsort(rows, 400, 600, before);
    for (size_t i = 1; i < 400; i++)
        is(before(rows + (i - 1) * 600, rows + i * 600) <= 0);
    any_free(rows);
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    malloc_trim(0);
    (void)mallinfo2();
    tell("the C library");
}

/* ---- threads that end, and leave their blocks to others ---- */

enum { SLOTS = 600, GENERATIONS = 5, SIDES = 3 };
struct slots {
    unsigned char *blocks[SLOTS];
    size_t sizes[SLOTS], wrong;
    uint64_t state;
    int generation;
};
static void *inherits(void *argument) {
    struct slots *own = argument;
    for (int i = 0; i < 3 * SLOTS; i++) {
        size_t slot = next(&own->state) % SLOTS, bytes = 1 + next(&own->state) % (next(&own->state) % 8 ? 700 : 30000);
        if (own->blocks[slot]) {
            own->wrong += wrong_of(own->blocks[slot], own->sizes[slot], own->sizes[slot], slot);
            any_free(own->blocks[slot]);
        }
        own->blocks[slot] = made(any_malloc(bytes)), own->sizes[slot] = bytes;
        fill(own->blocks[slot], 0, bytes, slot);
    }
    if (++own->generation < GENERATIONS) {
        pthread_t heir;
        pthread_attr_t detached;
        /* It goes on after this one has ended. */
        pthread_attr_init(&detached);
        if (pthread_create(&heir, &detached, inherits, own))
            own->wrong++;
        pthread_attr_destroy(&detached);
        return (void *)heir;
    }
    return NULL;
}
static void generations(void) {
    struct slots *sides = made(any_calloc(SIDES, sizeof *sides));
    pthread_t threads[SIDES];
    for (int i = 0; i < SIDES; i++) {
        sides[i].state = (uint64_t)i + 1;
        is(pthread_create(&threads[i], NULL, inherits, &sides[i]) == 0);
    }
    for (int i = 0; i < SIDES; i++) {
        void *heir = (void *)threads[i];
        while (heir)
            pthread_join((pthread_t)heir, &heir);
        is(sides[i].generation == GENERATIONS && sides[i].wrong == 0);
        for (size_t slot = 0; slot < SLOTS; slot++) {
            is(sides[i].blocks[slot] == NULL || wrong_of(sides[i].blocks[slot], sides[i].sizes[slot], sides[i].sizes[slot], slot) == 0);
            any_free(sides[i].blocks[slot]);
        }
    }
    any_free(sides);
    tell("generations");
}

/* ---- one thread makes, others free ---- */

enum { BATCH = 64, BATCHES = 120 };
static struct batch {
    unsigned char *blocks[BATCH];
    struct batch *next;
} *sent;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t came = PTHREAD_COND_INITIALIZER;
static int ended;
static size_t size_of(size_t i) { return 16 + i * i % 3000; }
static void *frees(void *unused) {
    size_t found = 0;
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (!sent && !ended)
            pthread_cond_wait(&came, &lock);
        struct batch *mine = sent;
        if (mine)
            sent = mine->next;
        pthread_mutex_unlock(&lock);
        if (!mine)
            return (void *)found;
        for (size_t i = 0; i < BATCH; i++) {
            found += wrong_of(mine->blocks[i], size_of(i), size_of(i), i);
            any_free(mine->blocks[i]);
        }
        any_free(mine);
    }
}
static void sends(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        is(pthread_create(&threads[i], NULL, frees, NULL) == 0);
    for (int round = 0; round < BATCHES; round++) {
        struct batch *made_now = made(any_malloc(sizeof *made_now));
        for (size_t i = 0; i < BATCH; i++)
            fill(made_now->blocks[i] = made(any_malloc(size_of(i))), 0, size_of(i), i);
        pthread_mutex_lock(&lock);
        made_now->next = sent, sent = made_now;
        pthread_cond_signal(&came);
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_lock(&lock);
    ended = 1;
    pthread_cond_broadcast(&came);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 3; i++) {
        void *found;
        pthread_join(threads[i], &found);
        is(found == NULL);
    }
    tell("sent to others");
}

/* ---- the ends of threads ---- */

static pthread_key_t key;
static size_t destroyed;
static void destroys(void *block) {
    /* Another one takes its place, once. */
    unsigned char *mine = block;
    size_t found = wrong_of(mine, 2000, 2000, 3);
    int again = mine[1999] == expected(3, 1999);
    mine = made(any_realloc(mine, 150000));
    mine[149999] = 1;
    any_free(mine);
    __atomic_add_fetch(&destroyed, found == 0, __ATOMIC_RELAXED);
    if (again && found == 0) {
        unsigned char *other = made(any_malloc(2000));
        fill(other, 0, 2000, 3);
        other[1999]++;
        pthread_setspecific(key, other);
    }
}
static void *has_destructors(void *unused) {
    unsigned char *block = made(any_calloc(1, 2000));
    fill(block, 0, 2000, 3);
    pthread_setspecific(key, block);
    return unused;
}
static void ends(void) {
    pthread_t threads[40];
    is(pthread_key_create(&key, destroys) == 0);
    for (int i = 0; i < 40; i++)
        is(pthread_create(&threads[i], NULL, has_destructors, NULL) == 0);
    for (int i = 0; i < 40; i++)
        pthread_join(threads[i], NULL);
    /* The second block of each has one wrong byte. */
    is(destroyed == 40);
    tell("ends of threads");
}

/* ---- more than there is DRAM for ---- */

static size_t most;
struct much {
    unsigned char **blocks;
    size_t *sizes, count, wrong, changes;
    uint64_t state;
};
static size_t any_size(uint64_t *state) {
    switch (next(state) % 16) {
    case 0:
        return 1 + next(state) % 120000;
    case 1:
    case 2:
        return 1 + next(state) % 9000;
    default:
        return 1 + next(state) % 900;
    }
}
static void *changes(void *argument) {
    struct much *own = argument;
    for (size_t i = 0; i < 3 * own->count; i++) {
        size_t block = i < own->count ? i : next(&own->state) % own->count, bytes = any_size(&own->state);
        unsigned char *now = own->blocks[block];
        if (now)
            own->wrong += wrong_of(now, own->sizes[block], own->sizes[block], block);
        if (now && i % 3 == 0) {
            size_t kept = bytes < own->sizes[block] ? bytes : own->sizes[block], at = 0, step = step_of(own->sizes[block]);
            now = made(any_realloc(now, bytes));
            for (; at < kept; at += step)
                own->wrong += now[at] != expected(block, at);
        } else {
            any_free(now);
            now = made(i % 5 ? any_malloc(bytes) : any_calloc(bytes, 1));
        }
        fill(own->blocks[block] = now, 0, own->sizes[block] = bytes, block);
        own->changes++;
    }
    return NULL;
}
static void much(void) {
    struct much two[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        size_t count = most / 2 / 5200;
        two[i] = (struct much){made(any_calloc(count, sizeof(void *))), made(any_calloc(count, sizeof(size_t))), count, 0, 0, (uint64_t)i + 1};
        is(pthread_create(&threads[i], NULL, changes, &two[i]) == 0);
    }
    size_t held = 0;
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        is(two[i].wrong == 0 && two[i].changes == 3 * two[i].count);
    }
    for (int i = 0; i < 2; i++) {
        struct much *own = &two[1 - i];
        for (size_t block = 0; block < own->count; block++) {
            is(wrong_of(own->blocks[block], own->sizes[block], own->sizes[block], block) == 0);
            held += own->sizes[block];
            any_free(own->blocks[block]);
        }
        any_free(own->blocks), any_free(own->sizes);
    }
    printf("held: %zu bytes\n", held);
    tell("much");
}

/* ---- the end of the program ---- */

static unsigned char *left;
static void freed_late(void) {
    is(wrong_of(left, 300000, 300000, 8) == 0);
    any_free(left);
    void *block = made(any_malloc(500));
    any_free(block);
    tell("at the end");
}
__attribute__((destructor)) static void freed_last(void) {
    void *block = made(any_malloc(200000));
    memset(block, 1, 200000);
    any_free(block);
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 4096);
    most = strtoull(count > 1 ? words[1] : "1", NULL, 10) << 20;
    nothing();
    too_much();
    alignments();
    usable();
    resizes();
    zeros();
    errors();
    library();
    generations();
    sends();
    ends();
    much();
    fill(left = made(any_malloc(300000)), 0, 300000, 8);
    atexit(freed_late);
    return 0;
}
