/* A table of counters and a list of runs that outlive the program. They are objects of a pool, of
 * 64 and 24 bytes, that were made permanent. A later run finds them by their names. Addresses differ
 * from run to run, so objects refer to each other by numbers.
 *
 *   cc permanent.c $(pkg-config --cflags --libs fulgurite) -o permanent
 *   ./permanent counters.pool      (twice)
 */
#include <fulgurite.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNTERS 20000u
#define NOTHING UINT32_MAX

struct counter {
    uint64_t count;
    char rest[56];
};
struct run {
    uint64_t counted;
    uint32_t before; /* the run before this one */
};

static void must(fulgurite_status status, const char *what) {
    if (status != FULGURITE_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, fulgurite_strerror(status), fulgurite_last_message());
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: permanent POOL\n");
        return 2;
    }
    fulgurite_options *options = fulgurite_options_new();
    must(fulgurite_options_pool(options, argv[1]), "pool");
    must(fulgurite_options_size(options, "32M"), "size"); /* of a new pool */
    must(fulgurite_options_dram(options, "16M"), "dram");
    fulgurite_objects *objects = NULL;
    fulgurite_status started = fulgurite_objects_start(options, 2 * COUNTERS, 0, &objects);
    fulgurite_options_free(options);
    if (started == FULGURITE_NOT_PERMITTED) {
        printf("skipped: %s\n", fulgurite_last_message());
        return 0;
    }
    must(started, "start");

    void *table = NULL;
    fulgurite_status found =
        fulgurite_object_array_named(objects, "counters", COUNTERS, sizeof(struct counter), &table);
    if (found == FULGURITE_NOT_FOUND) {
        table = fulgurite_object_array_alloc(objects, COUNTERS, sizeof(struct counter));
        if (table == NULL) {
            fprintf(stderr, "%s\n", fulgurite_last_message());
            return 1;
        }
        must(fulgurite_object_array_set_permanent(objects, table, "counters"), "set permanent");
    } else {
        must(found, "array");
    }
    fulgurite_object_pool *runs = NULL;
    must(fulgurite_object_pool_named(objects, "runs", sizeof(struct run), &runs), "pool of objects");

    uint64_t sum = 0;
    for (uint32_t index = 0; index < COUNTERS; index++) {
        struct counter *counter = (struct counter *)((char *)table + (size_t)index * FULGURITE_OBJECT_STRIDE);
        counter->count += index % 2;
        sum += counter->count;
    }
    struct run *newest = fulgurite_object_pool_root(runs), *run = fulgurite_object_pool_alloc(runs);
    if (run == NULL) {
        fprintf(stderr, "%s\n", fulgurite_last_message());
        return 1;
    }
    run->counted = sum;
    run->before = NOTHING;
    if (newest != NULL) {
        must(fulgurite_object_reference(objects, newest, &run->before), "reference");
    }
    must(fulgurite_object_pool_set_root(runs, run), "root");
    must(fulgurite_objects_sync(objects, NULL), "sync"); /* survives from here on, whatever happens */

    for (;;) {
        printf("counted %" PRIu64 "\n", run->counted);
        if (run->before == NOTHING) {
            break;
        }
        run = fulgurite_object_at(objects, run->before);
        if (run == NULL) {
            fprintf(stderr, "%s\n", fulgurite_last_message());
            return 1;
        }
    }
    fulgurite_object_pool_free(runs);
    return 0;
}
