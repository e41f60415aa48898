/* Flash as the memory of an arena of jemalloc 5: its extents are blocks of an allocator of Fulgurite.
 * docs/c.md explains it.
 *
 *   static fulgurite_extents extents;
 *   fulgurite_extents_init(&extents, allocator);
 *   extent_hooks_t *hooks = &extents.hooks;
 *   unsigned arena;
 *   size_t size = sizeof arena;
 *   mallctl("arenas.create", &arena, &size, &hooks, sizeof hooks);
 *   void *block = mallocx(100, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE);
 *
 * The structure must live as long as the arena. jemalloc keeps what it knows of small blocks next to
 * them only in part: freeing may touch their pages.
 */
#ifndef FULGURITE_JEMALLOC_H
#define FULGURITE_JEMALLOC_H

#include <fulgurite.h>
#include <jemalloc/jemalloc.h>
#include <string.h>

typedef struct fulgurite_extents {
    extent_hooks_t hooks; /* first: jemalloc hands its address back */
    fulgurite_allocator *allocator;
} fulgurite_extents;

static inline fulgurite_allocator *fulgurite_extents_allocator(extent_hooks_t *hooks) {
    return ((fulgurite_extents *)(void *)hooks)->allocator;
}

static inline void *fulgurite_extents_alloc(extent_hooks_t *hooks, void *at, size_t bytes, size_t alignment,
                                            bool *zero, bool *commit, unsigned arena) {
    void *block;
    (void)arena;
    if (at != NULL) {
        return NULL; /* no block is at a place that was asked for */
    }
    block = fulgurite_aligned_alloc(fulgurite_extents_allocator(hooks), alignment, bytes);
    if (block != NULL && *zero) {
        memset(block, 0, bytes);
    }
    *commit = block != NULL;
    return block;
}

/* These return whether the hook did not do it. */

static inline bool fulgurite_extents_dalloc(extent_hooks_t *hooks, void *at, size_t bytes, bool committed,
                                            unsigned arena) {
    (void)bytes, (void)committed, (void)arena;
    return fulgurite_free(fulgurite_extents_allocator(hooks), at) != FULGURITE_OK;
}

static inline void fulgurite_extents_destroy(extent_hooks_t *hooks, void *at, size_t bytes, bool committed,
                                             unsigned arena) {
    (void)bytes, (void)committed, (void)arena;
    (void)fulgurite_free(fulgurite_extents_allocator(hooks), at);
}

static inline bool fulgurite_extents_purge(extent_hooks_t *hooks, void *at, size_t bytes, size_t offset,
                                           size_t length, unsigned arena) {
    (void)bytes, (void)arena;
    return fulgurite_discard(fulgurite_extents_allocator(hooks), (char *)at + offset, length) != FULGURITE_OK;
}

static inline bool fulgurite_extents_split(extent_hooks_t *hooks, void *at, size_t bytes, size_t first,
                                           size_t second, bool committed, unsigned arena) {
    (void)bytes, (void)second, (void)committed, (void)arena;
    return fulgurite_split(fulgurite_extents_allocator(hooks), at, first) != FULGURITE_OK;
}

static inline bool fulgurite_extents_merge(extent_hooks_t *hooks, void *first, size_t first_bytes, void *second,
                                           size_t second_bytes, bool committed, unsigned arena) {
    (void)first_bytes, (void)second_bytes, (void)committed, (void)arena;
    return fulgurite_join(fulgurite_extents_allocator(hooks), first, second) != FULGURITE_OK;
}

/* Fills the hooks in, over an allocator. */
static inline void fulgurite_extents_init(fulgurite_extents *extents, fulgurite_allocator *allocator) {
    memset(extents, 0, sizeof *extents);
    extents->hooks.alloc = fulgurite_extents_alloc;
    extents->hooks.dalloc = fulgurite_extents_dalloc;
    extents->hooks.destroy = fulgurite_extents_destroy;
    extents->hooks.purge_forced = fulgurite_extents_purge;
    extents->hooks.split = fulgurite_extents_split;
    extents->hooks.merge = fulgurite_extents_merge;
    extents->allocator = allocator;
}

#endif
