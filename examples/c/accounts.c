/* Transfers between accounts, as jobs on fibers: while one waits for flash, the others run. Each
 * transfer is a write section, so that a token has both of its sides or none.
 *
 *   cc accounts.c $(pkg-config --cflags --libs fulgurite) -o accounts
 *   ./accounts my.pool      (run it twice: it goes on)
 */
#include <fulgurite.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ACCOUNTS 50000 /* of 8 bytes each: a region of 400 KB */
#define JOBS 64
#define TRANSFERS 100 /* of each job */

static void must(fulgurite_status status, const char *what) {
    if (status != FULGURITE_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, fulgurite_strerror(status), fulgurite_last_message());
        exit(1);
    }
}

struct work {
    fulgurite_region *accounts;
    uint64_t seed;
};

/* Adds to an account. In a job, with its context: a miss switches to another job. */
static fulgurite_status add(fulgurite_context *context, fulgurite_region *accounts, uint64_t account, int64_t amount) {
    int64_t balance;
    fulgurite_status status = fulgurite_region_read_at(context, accounts, 8 * account, &balance, 8);
    if (status != FULGURITE_OK) {
        return status;
    }
    balance += amount;
    return fulgurite_region_write_at(context, accounts, 8 * account, &balance, 8);
}

/* The code of a job. Jobs of one worker switch only inside of calls, so two of them could interleave
 * between the read and the write of add(): each job here has accounts of its own. */
static int transfer(fulgurite_context *context, void *user) {
    struct work *work = user;
    uint64_t own = ACCOUNTS / JOBS;
    for (int i = 0; i < TRANSFERS; i++) {
        uint64_t from = work->seed * own + (uint64_t)i * 7919 % own;
        uint64_t to = work->seed * own + (uint64_t)i * 104729 % own;
        fulgurite_status status = fulgurite_section_begin(context);
        if (status == FULGURITE_OK) {
            status = add(context, work->accounts, from, -5);
        }
        if (status == FULGURITE_OK) {
            status = add(context, work->accounts, to, 5);
        }
        if (status != FULGURITE_OK) {
            return (int)status; /* the section ends with the job */
        }
        fulgurite_section_end(context);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: accounts POOL\n");
        return 2;
    }
    fulgurite_options *options = fulgurite_options_new();
    must(fulgurite_options_pool(options, argv[1]), "pool");
    must(fulgurite_options_size(options, "32M"), "size");
    must(fulgurite_options_dram(options, "16M"), "dram");
    /* A thread syncs each second. The end of the program is a sync, too. */
    must(fulgurite_options_durability_lazy(options, 1000, 8 << 20), "durability");
    fulgurite_pool *pool = NULL;
    must(fulgurite_open(options, &pool), "open");
    fulgurite_options_free(options);

    fulgurite_region *accounts = NULL;
    fulgurite_root *transfers = NULL;
    must(fulgurite_region_open(pool, "accounts", 8 * ACCOUNTS, &accounts), "region");
    must(fulgurite_root_open(pool, "transfers", 0, &transfers), "root");

    struct work works[JOBS];
    fulgurite_job *jobs[JOBS];
    for (uint64_t i = 0; i < JOBS; i++) {
        works[i] = (struct work){accounts, i};
        must(fulgurite_submit(pool, transfer, &works[i], 0, &jobs[i]), "submit");
    }
    for (int i = 0; i < JOBS; i++) {
        int failed = 0;
        must(fulgurite_job_wait(jobs[i], &failed), "wait");
        must((fulgurite_status)failed, "transfer");
    }
    uint64_t before = 0;
    must(fulgurite_root_load(NULL, transfers, &before), "load");
    must(fulgurite_root_store(NULL, transfers, before + JOBS * TRANSFERS), "store");

    int64_t *balances = malloc(8 * ACCOUNTS);
    if (balances == NULL) {
        return 1;
    }
    int64_t sum = 0, busiest = 0;
    must(fulgurite_region_read_at(NULL, accounts, 0, balances, 8 * ACCOUNTS), "read");
    for (int i = 0; i < ACCOUNTS; i++) {
        sum += balances[i];
        busiest = balances[i] > busiest ? balances[i] : busiest;
    }
    free(balances);
    printf("%" PRIu64 " transfers, a sum of %" PRId64 ", and %s\n", before + JOBS * TRANSFERS, sum,
           busiest > 0 ? "some have gained" : "nobody has gained");

    fulgurite_statistics counted;
    must(fulgurite_get_statistics(pool, &counted, sizeof counted), "statistics");
    if (counted.jobs_started < JOBS || counted.dram_bytes != 16 << 20) {
        return 1;
    }
    fulgurite_root_free(transfers);
    fulgurite_region_free(accounts);
    must(fulgurite_close(pool), "close");
    return 0;
}
