/* A session store in a pool: values of any length under numbers, kept by sync, found again by the
 * next run, and rolled back when a change was a mistake.
 *
 *   cc sessions.c $(pkg-config --cflags --libs fulgurite) -o sessions
 *   ./sessions my.pool      (run it twice: it goes on)
 */
#include <fulgurite.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SESSIONS 1000

/* Ends the program with what went wrong, unless nothing did. */
static void must(fulgurite_status status, const char *what) {
    if (status != FULGURITE_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, fulgurite_strerror(status), fulgurite_last_message());
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: sessions POOL\n");
        return 2;
    }
    fulgurite_options *options = fulgurite_options_new();
    must(fulgurite_options_pool(options, argv[1]), "pool");
    must(fulgurite_options_size(options, "32M"), "size"); /* of a new one */
    must(fulgurite_options_dram(options, "16M"), "dram");
    must(fulgurite_options_keep_tokens(options, 4), "tokens");
    fulgurite_pool *pool = NULL;
    must(fulgurite_open(options, &pool), "open");
    fulgurite_options_free(options);

    fulgurite_root *runs = NULL;
    fulgurite_u64_blobs *sessions = NULL;
    must(fulgurite_root_open(pool, "runs", 0, &runs), "root");
    must(fulgurite_u64_blobs_open(pool, "sessions", 2 * SESSIONS, 8 << 20, &sessions), "blobs");
    uint64_t run = 0;
    must(fulgurite_root_load(NULL, runs, &run), "load");
    printf("runs before this one: %" PRIu64 "\n", run);
    must(fulgurite_root_store(NULL, runs, run + 1), "store");

    char visit[32];
    int length = snprintf(visit, sizeof visit, "[run %" PRIu64 "]", run + 1);
    for (uint64_t session = 0; session < SESSIONS; session++) {
        must(fulgurite_u64_blobs_append(NULL, sessions, session, visit, (size_t)length, NULL), "append");
    }
    uint64_t token = 0;
    must(fulgurite_sync(pool, &token), "sync"); /* survives from here on, whatever happens */

    /* A mistake, and back. */
    must(fulgurite_u64_blobs_put(NULL, sessions, 7, "gone", 4), "put");
    must(fulgurite_roll_back(pool, token), "roll back");

    char value[4096];
    size_t whole = 0;
    must(fulgurite_u64_blobs_get(NULL, sessions, 7, value, sizeof value, &whole), "get");
    printf("session 7: %.*s\n", (int)whole, value);
    if (fulgurite_u64_blobs_get(NULL, sessions, SESSIONS, value, sizeof value, &whole) != FULGURITE_NOT_FOUND) {
        fprintf(stderr, "there is a session that nobody has made\n");
        return 1;
    }
    fulgurite_u64_blobs_free(sessions);
    fulgurite_root_free(runs);
    must(fulgurite_close(pool), "close");
    return 0;
}
