/* A list of nodes in memory that is larger than its DRAM: only the allocation calls differ from those
 * of a list in plain memory.
 *
 *   cc list.c $(pkg-config --cflags --libs fulgurite) -o list
 *   ./list flash.tmp      (a file that is created, and gone afterwards)
 */
#include <fulgurite.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define NODES 200000 /* of 192 bytes with their slots: 37 MiB */

struct node {
    struct node *next;
    uint64_t number;
    char payload[160];
};

static void must(fulgurite_status status, const char *what) {
    if (status != FULGURITE_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, fulgurite_strerror(status), fulgurite_last_message());
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: list FLASH\n");
        return 2;
    }
    fulgurite_options *options = fulgurite_options_new();
    must(fulgurite_options_flat(options, argv[1]), "flash");
    must(fulgurite_options_size(options, "64M"), "size");
    must(fulgurite_options_dram(options, "24M"), "dram"); /* of the whole process */
    fulgurite_allocator *flash = NULL;
    must(fulgurite_allocator_start(options, &flash), "start");
    fulgurite_options_free(options);

    struct node *list = NULL;
    for (uint64_t i = 0; i < NODES; i++) {
        struct node *node = fulgurite_malloc(flash, sizeof *node);
        if (node == NULL) {
            fprintf(stderr, "%s\n", fulgurite_last_message());
            return 1;
        }
        node->number = i;
        node->next = list;
        list = node;
    }
    uint64_t sum = 0, nodes = 0;
    for (struct node *node = list; node != NULL; node = node->next) {
        sum += node->number;
        nodes++;
    }
    printf("%" PRIu64 " nodes, a sum of %" PRIu64 "\n", nodes, sum);
    while (list != NULL) {
        struct node *next = list->next;
        must(fulgurite_free(flash, list), "free");
        list = next;
    }
    /* A mistake is reported, and does no harm. */
    if (fulgurite_free(flash, &sum) != FULGURITE_INVALID_ARGUMENT) {
        return 1;
    }
    fulgurite_allocator_statistics met;
    must(fulgurite_allocator_get_statistics(flash, &met, sizeof met), "statistics");
    printf("%s, and %s\n", met.used_bytes == 0 ? "all is freed" : "some is left",
           met.peak_bytes <= 24 << 20 ? "the cap was held" : "the cap was not held");
    return met.errors == 0 && met.reads > 0 ? 0 : 1;
}
