/* Single instructions that need several pages at once, of memory that has left DRAM: a word across a border, a copy of
 * one page to another by `rep movsb`, and eight words by one gather of AVX2. A second thread evicts all the time, and the
 * program takes so much of its own that only the fewest frames are left. An alarm ends it when nothing goes on. Prints
 * how many of each were wrong. Argument: how many rounds. */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 512, OTHER = 512, OWN = 24 << 20, SECONDS = 120 };

static unsigned char *memory, *other;
static char own[OWN];
static volatile int ends;

static void evict(void) {
    for (size_t page = 0; page < OTHER; page++)
        other[page * PAGE]++;
}
static void *evicts(void *unused) {
    while (!ends)
        evict();
    return unused;
}
/* What is in each page from byte 16 on. */
static uint32_t expected(size_t page) { return (uint32_t)(page * 2654435761u + 12345); }

/* The eight words by one instruction. */
__attribute__((target("avx2"))) static int gathers(size_t first) {
    uint32_t found[8], bad = 0;
    __m256i step = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i places = _mm256_mullo_epi32(step, _mm256_set1_epi32(3 * PAGE));
    const int *from = (const int *)(memory + first * PAGE + 16);
    _mm256_storeu_si256((__m256i *)found, _mm256_i32gather_epi32(from, places, 1));
    for (size_t i = 0; i < 8; i++)
        bad |= found[i] != expected(first + 3 * i);
    return bad != 0;
}

int main(int count, char **words) {
    size_t rounds = count > 1 ? strtoul(words[1], NULL, 10) : 1, across = 0, copied = 0, gathered = 0;
    pthread_t thread;
    memset(own, 1, sizeof own);
    memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    other = mmap(NULL, OTHER * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || other == MAP_FAILED)
        return 3;
    for (size_t page = 0; page < PAGES; page++)
        for (size_t at = 16; at < PAGE - 16; at += 4)
            *(uint32_t *)(memory + page * PAGE + at) = expected(page);
    alarm(SECONDS);
    evict();
    if (pthread_create(&thread, NULL, evicts, NULL))
        return 4;
    for (size_t round = 0; round < rounds; round++) {
        size_t page = round * 37 % (PAGES - 32);
        volatile uint64_t *word = (volatile uint64_t *)(memory + (page + 1) * PAGE - 3);
        evict();
        *word = round * 0x0101010101010101;
        evict();
        across += *word != round * 0x0101010101010101;
        /* Without its first and last bytes, which the words above have. */
        unsigned char *from = memory + page * PAGE + 16, *to = memory + (page + 5) * PAGE + 16;
        size_t bytes = PAGE - 32;
        evict();
        __asm__ volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(bytes) : : "memory");
        copied += memcmp(memory + page * PAGE + 16, memory + (page + 5) * PAGE + 16, PAGE - 32) != 0;
        /* The same words again, as they were. */
        for (size_t at = 16; at < PAGE - 16; at += 4)
            *(uint32_t *)(memory + (page + 5) * PAGE + at) = expected(page + 5);
        evict();
        if (__builtin_cpu_supports("avx2"))
            gathered += (size_t)gathers(page);
    }
    ends = 1;
    pthread_join(thread, NULL);
    printf("across: %zu, copied: %zu, gathered: %zu, own: %d\n", across, copied, gathered, own[OWN - 1]);
    return 0;
}
