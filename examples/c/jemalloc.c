/* Words counted in a tree whose nodes are jemalloc's blocks, in an arena whose extents are flash. Only the
 * calls that allocate and free name the arena.
 *
 *   cc jemalloc.c $(pkg-config --cflags --libs fulgurite jemalloc) -o jemalloc
 *   ./jemalloc flash.img      (the file is made, and gone with the program)
 */
#include <fulgurite_jemalloc.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define NODES 200000u

struct node {
    uint64_t key;
    struct node *left, *right;
    char text[72];
};

static void must(fulgurite_status status, const char *what) {
    if (status != FULGURITE_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, fulgurite_strerror(status), fulgurite_last_message());
        exit(1);
    }
}

static uint64_t count(const struct node *node, uint64_t from, uint64_t to) {
    char text[sizeof node->text];
    if (node == NULL) {
        return 0;
    }
    snprintf(text, sizeof text, "node %" PRIu64, node->key);
    if (node->key < from || node->key > to || strcmp(text, node->text) != 0) {
        fprintf(stderr, "the node %" PRIu64 " is called %s\n", node->key, node->text);
        exit(1);
    }
    return count(node->left, from, node->key) + 1 + count(node->right, node->key, to);
}

static void drop(struct node *node, int flags) {
    if (node != NULL) {
        drop(node->left, flags);
        drop(node->right, flags);
        dallocx(node, flags);
    }
}

int main(int argc, char **argv) {
    static fulgurite_extents extents;
    if (argc != 2) {
        fprintf(stderr, "usage: jemalloc FLASH\n");
        return 2;
    }
    fulgurite_options *options = fulgurite_options_new();
    must(fulgurite_options_flat(options, argv[1]), "flat");
    must(fulgurite_options_size(options, "256M"), "size");
    must(fulgurite_options_dram(options, "24M"), "dram");
    fulgurite_allocator *allocator = NULL;
    must(fulgurite_allocator_start(options, &allocator), "start");
    fulgurite_options_free(options);

    fulgurite_extents_init(&extents, allocator);
    extent_hooks_t *hooks = &extents.hooks;
    unsigned arena = 0;
    size_t size = sizeof arena;
    if (mallctl("arenas.create", &arena, &size, &hooks, sizeof hooks) != 0) {
        fprintf(stderr, "jemalloc makes no arena\n");
        return 1;
    }
    const int flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;

    struct node *root = NULL;
    uint64_t random = 1;
    for (uint32_t made = 0; made < NODES; made++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        struct node *node = mallocx(sizeof *node, flags);
        if (node == NULL || !fulgurite_owns(allocator, node)) {
            fprintf(stderr, "a node is not in flash\n");
            return 1;
        }
        node->key = random >> 16;
        node->left = node->right = NULL;
        snprintf(node->text, sizeof node->text, "node %" PRIu64, node->key);
        struct node **link = &root;
        while (*link != NULL) {
            link = node->key < (*link)->key ? &(*link)->left : &(*link)->right;
        }
        *link = node;
    }
    printf("%" PRIu64 " nodes in order\n", count(root, 0, UINT64_MAX));
    drop(root, flags);

    char name[64];
    snprintf(name, sizeof name, "arena.%u.destroy", arena);
    if (mallctl(name, NULL, NULL, NULL, 0) != 0) {
        fprintf(stderr, "jemalloc does not destroy the arena\n");
        return 1;
    }
    fulgurite_allocator_statistics statistics;
    must(fulgurite_allocator_get_statistics(allocator, &statistics, sizeof statistics), "statistics");
    printf("%" PRIu64 " bytes are left\n", statistics.used_bytes);
    return statistics.errors == 0 ? 0 : 1;
}
