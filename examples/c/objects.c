/* A table of counters that is larger than its DRAM: 100,000 objects of 128 bytes, each found by a
 * multiplication, and a list of what was counted most. Only the calls that allocate and free are not
 * those of any other program.
 *
 *   cc objects.c $(pkg-config --cflags --libs fulgurite) -o objects
 *   ./objects flash.img      (the file is made, and gone with the program)
 */
#include <fulgurite.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNTERS 100000u

struct counter {
    uint64_t count;
    char name[112];
    struct counter *next; /* in the list of those that were counted */
};

static void must(fulgurite_status status, const char *what) {
    if (status != FULGURITE_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, fulgurite_strerror(status), fulgurite_last_message());
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: objects FLASH\n");
        return 2;
    }
    fulgurite_options *options = fulgurite_options_new();
    must(fulgurite_options_flat(options, argv[1]), "flat");
    must(fulgurite_options_size(options, "64M"), "size");
    must(fulgurite_options_dram(options, "8M"), "dram");
    fulgurite_objects *objects = NULL;
    fulgurite_status started =
        fulgurite_objects_start(options, 2 * COUNTERS, FULGURITE_OBJECTS_CHECK_OVERRUNS, &objects);
    fulgurite_options_free(options);
    if (started == FULGURITE_NOT_PERMITTED) {
        printf("skipped: %s\n", fulgurite_last_message());
        return 0;
    }
    must(started, "start");

    char *table = fulgurite_object_array_alloc(objects, COUNTERS, sizeof(struct counter));
    if (table == NULL) {
        fprintf(stderr, "%s\n", fulgurite_last_message());
        return 1;
    }
    uint64_t random = 1;
    struct counter *counted = NULL;
    for (uint32_t round = 0; round < COUNTERS; round++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint32_t index = (uint32_t)(random >> 33) % COUNTERS;
        struct counter *counter = (struct counter *)(table + (size_t)index * FULGURITE_OBJECT_STRIDE);
        if (counter->count++ == 0) {
            snprintf(counter->name, sizeof counter->name, "counter %" PRIu32, index);
            counter->next = counted;
            counted = counter;
        }
    }
    uint64_t sum = 0, distinct = 0;
    for (struct counter *counter = counted; counter != NULL; counter = counter->next) {
        char name[sizeof counter->name];
        uint32_t index = (uint32_t)(((char *)counter - table) / FULGURITE_OBJECT_STRIDE);
        snprintf(name, sizeof name, "counter %" PRIu32, index);
        if (strcmp(name, counter->name) != 0) {
            fprintf(stderr, "counter %" PRIu32 " is called %s\n", index, counter->name);
            return 1;
        }
        sum += counter->count;
        distinct++;
    }
    printf("counted %" PRIu64 " in %" PRIu64 " counters\n", sum, distinct);

    struct counter *alone = fulgurite_object_alloc(objects, sizeof *alone);
    if (alone == NULL || alone->count != 0) {
        fprintf(stderr, "an object by itself: %s\n", fulgurite_last_message());
        return 1;
    }
    must(fulgurite_object_free(objects, alone), "free");
    if (fulgurite_object_free(objects, alone) != FULGURITE_INVALID_ARGUMENT) {
        fprintf(stderr, "an object was freed twice\n");
        return 1;
    }
    must(fulgurite_object_array_free(objects, table), "free the array");
    fulgurite_objects_statistics statistics;
    must(fulgurite_objects_get_statistics(objects, &statistics, sizeof statistics), "statistics");
    if (statistics.objects != 0 || statistics.errors != 0 || statistics.reads == 0) {
        fprintf(stderr, "objects %" PRIu64 ", errors %" PRIu64 ", reads %" PRIu64 "\n", statistics.objects,
                statistics.errors, statistics.reads);
        return 1;
    }
    return 0;
}
