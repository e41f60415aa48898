/* The C interface of Fulgurite: flash that passes for DRAM. docs/c.md explains it.
 *
 * Made by cbindgen from crates/capi/src. UPDATE=1 with the test conform_header makes it again. */

#ifndef FULGURITE_H
#define FULGURITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Pages may be read. A bit of fulgurite_region_set_permissions().
 */
#define FULGURITE_MAY_READ 1

/**
 * Pages may be written.
 */
#define FULGURITE_MAY_WRITE 2

/**
 * Pages outlive the program. A bit in addition to FULGURITE_MAY_READ and FULGURITE_MAY_WRITE.
 */
#define FULGURITE_PERMANENT 4

/**
 * The distance of two objects of an array, in bytes.
 */
#define FULGURITE_OBJECT_STRIDE 4096

/**
 * The longest object, in bytes.
 */
#define FULGURITE_OBJECT_BYTES_MAX 4082

/**
 * Fills in missing pages in the thread that touches them, in a handler of SIGBUS. A fault costs a
 * fifth. But a system call that is given an object without a page fails with EFAULT, a handler of
 * a signal must touch no object, and threads must not block SIGBUS.
 */
#define FULGURITE_OBJECTS_IN_LINE 1

/**
 * Looks for writes past the end of an object whenever its page leaves DRAM, and ends the process
 * by abort() with a message when there was one.
 */
#define FULGURITE_OBJECTS_CHECK_OVERRUNS 2

/**
 * Makes no state of a pool durable but by fulgurite_objects_sync(). Accesses that would need more
 * room before it get SIGBUS then, and so few changes may be left that a sync finds no room.
 */
#define FULGURITE_OBJECTS_SYNC_ONLY_WHEN_TOLD 4

/**
 * What a function returns: 0 when it did what it says, else why it did not.
 *
 * fulgurite_last_message() says more: what failed, where, and what to do.
 */
typedef enum {
    /**
     * Done.
     */
    FULGURITE_OK = 0,
    /**
     * There is no such key, name or token.
     */
    FULGURITE_NOT_FOUND = 1,
    /**
     * The value was not the expected one, and was not changed.
     */
    FULGURITE_DIFFERENT = 2,
    /**
     * The buffer is too small. The needed size was stored.
     */
    FULGURITE_BUFFER_TOO_SMALL = 3,
    /**
     * An argument is NULL, misaligned, not UTF-8, or of another pool or thread.
     */
    FULGURITE_INVALID_ARGUMENT = 4,
    /**
     * A place is outside of what it must be inside of.
     */
    FULGURITE_OUT_OF_RANGE = 5,
    /**
     * A key or value is longer than any can be.
     */
    FULGURITE_TOO_LONG = 6,
    /**
     * The pool, the container or the history of unsynced changes is full.
     */
    FULGURITE_NO_SPACE = 7,
    /**
     * The DRAM budget does not suffice, or the kernel gives no memory.
     */
    FULGURITE_NO_MEMORY = 8,
    /**
     * The medium failed. The data behind other addresses is unaffected.
     */
    FULGURITE_IO = 9,
    /**
     * What was read is not what was written.
     */
    FULGURITE_CORRUPT = 10,
    /**
     * The container or the memory cannot be used any more: open it again.
     */
    FULGURITE_POISONED = 11,
    /**
     * The pool was closed.
     */
    FULGURITE_CLOSED = 12,
    /**
     * It is in use: by pins, an open write section, a reader, or a call under way.
     */
    FULGURITE_BUSY = 13,
    /**
     * The name leads to something of another type.
     */
    FULGURITE_WRONG_TYPE = 14,
    /**
     * The medium keeps nothing, so it has no names and no tokens.
     */
    FULGURITE_NO_POOL = 15,
    /**
     * The medium cannot be opened or created.
     */
    FULGURITE_CANNOT_OPEN = 16,
    /**
     * An option cannot be read, is out of range, or has no effect on this medium.
     */
    FULGURITE_BAD_OPTION = 17,
    /**
     * The page may not be read or written.
     */
    FULGURITE_NOT_PERMITTED = 18,
    /**
     * The job was cancelled.
     */
    FULGURITE_CANCELLED = 19,
    /**
     * The deadline of the job has passed.
     */
    FULGURITE_DEADLINE_EXCEEDED = 20,
    /**
     * There is more work than can be done in time. Retry later.
     */
    FULGURITE_OVERLOADED = 21,
    /**
     * The job has used up its stack.
     */
    FULGURITE_STACK_OVERFLOW = 22,
    /**
     * The call would wait for the worker that it runs on: pass the job's context, or call it from
     * another thread.
     */
    FULGURITE_IN_A_JOB = 23,
    /**
     * A defect of this library or of a callback. What was changed may be half changed.
     */
    FULGURITE_PANICKED = 24,
    /**
     * Anything else.
     */
    FULGURITE_FAILED = 25,
    /**
     * This process is a child, by fork(), of the one that opened the memory.
     */
    FULGURITE_FORKED = 26,
} fulgurite_status;

/**
 * Memory in flash that is used by plain loads and stores. Any thread may allocate, and free what
 * others have allocated. It lives as long as the process. A child after fork() must not touch its
 * blocks, and calls with the handle fail there with FULGURITE_FORKED.
 */
typedef struct fulgurite_allocator fulgurite_allocator;

/**
 * Values of 0 bytes to 1 GiB under byte strings of 0 bytes to 64 KiB. Any thread and any job may
 * use it.
 */
typedef struct fulgurite_blobs fulgurite_blobs;

/**
 * What a job has of its worker. It is valid while the job's callback runs, in that callback only.
 *
 * Functions that take one do their work on the job's fiber: a miss lets other jobs run. From a
 * thread that is no worker they take NULL, and then wait until a worker has done it.
 */
typedef struct fulgurite_context fulgurite_context;

/**
 * An allocator in flash memory. An address is a number of 64 bits that may be stored anywhere,
 * also in the pool. 0 is none. Any thread and any job may use a heap. It does not order those that
 * read and write one object.
 */
typedef struct fulgurite_heap fulgurite_heap;

/**
 * A job that was submitted. Wait for it with fulgurite_job_wait(), or let it go with
 * fulgurite_job_free().
 */
typedef struct fulgurite_job fulgurite_job;

/**
 * Values of 0 bytes to half a mebibyte under byte strings of 0 bytes to 64 KiB, in no order. Any
 * thread may use it, without a context: a value that is cached costs no switch of threads, and one
 * that is not is read while this thread waits. Jobs cannot use it yet.
 */
typedef struct fulgurite_map fulgurite_map;

/**
 * A pool of objects under a name, which outlive the program.
 */
typedef struct fulgurite_object_pool fulgurite_object_pool;

/**
 * Objects in flash that are used by plain loads and stores: SSDAlloc's object-per-page allocation.
 * Each begins a page of addresses, and only its own bytes take DRAM and flash. Any thread may
 * allocate, and free what others have allocated. It lives as long as the process. A child after
 * fork() must not touch its objects, and calls with the handle fail there with FULGURITE_FORKED.
 */
typedef struct fulgurite_objects fulgurite_objects;

/**
 * Where a memory is stored, how large it is, and what it promises. Make one, set what is needed,
 * and pass it to fulgurite_open().
 */
typedef struct fulgurite_options fulgurite_options;

/**
 * An open memory in flash: a pool, which outlives the program, or flat memory, which does not. Any
 * thread may use it.
 */
typedef struct fulgurite_pool fulgurite_pool;

/**
 * Bytes that read as zeros until they are written. Any thread and any job may use it. It orders
 * neither readers nor writers: a reader that overlaps a writer may see some of the new bytes. A
 * token has each write whole, or not at all.
 */
typedef struct fulgurite_region fulgurite_region;

/**
 * A number of 64 bits in a pool. It is read and written in one piece, by any thread and any job.
 */
typedef struct fulgurite_root fulgurite_root;

/**
 * Values of 0 bytes to 1 GiB under numbers of 64 bits. Any thread and any job may use it. It is
 * faster than fulgurite_blobs, and has no order.
 */
typedef struct fulgurite_u64_blobs fulgurite_u64_blobs;

/**
 * Shows a name of a pool: a string each for the name and the type of what it leads to, and how
 * many bytes that takes. The strings last as long as the call. It runs on the caller's thread.
 */
typedef void (*fulgurite_name_visitor)(void *user,
                                       const char *name,
                                       const char *type_name,
                                       uint64_t bytes);

/**
 * Shows a key and its value. Returns whether to go on: 0 ends the scan. It runs on a worker, on a
 * stack of its fiber, and must not use the context of the scan. The bytes last as long as the
 * call.
 */
typedef int (*fulgurite_blob_visitor)(void *user,
                                      const void *key,
                                      size_t key_length,
                                      const void *value,
                                      size_t value_length);

/**
 * Shows a key and the length of its value. It runs on a worker, on a stack of its fiber, and must
 * not use the context of the call.
 */
typedef void (*fulgurite_u64_visitor)(void *user, uint64_t key, size_t length);

/**
 * The code of a job. It runs on a worker, on the stack of a fiber (fulgurite_options_fibers()),
 * and passes the context on to what it calls. It must not keep the context, wait for anything by
 * itself, leave by longjmp() or an exception, nor fork.
 */
typedef int (*fulgurite_callback)(fulgurite_context *context, void *user);

/**
 * What a memory has counted since it was opened, over all workers. Later versions add members at
 * the end.
 */
typedef struct {
    /**
     * The DRAM budget, in bytes.
     */
    uint64_t dram_bytes;
    /**
     * Frames of 4 KiB that it leaves to data.
     */
    uint64_t frames;
    /**
     * Of these, free ones.
     */
    uint64_t frames_free;
    /**
     * Accesses of jobs that have ended.
     */
    uint64_t accesses;
    /**
     * Accesses that started a read of flash.
     */
    uint64_t misses;
    /**
     * Accesses that joined a read or write-back under way.
     */
    uint64_t misses_joined;
    /**
     * Frames freed without a write.
     */
    uint64_t evicted_clean;
    /**
     * Frames written back.
     */
    uint64_t evicted_dirty;
    /**
     * Reads that failed.
     */
    uint64_t read_errors;
    /**
     * Write-backs that failed. The data stayed in DRAM.
     */
    uint64_t write_errors;
    /**
     * Jobs and blocking calls begun.
     */
    uint64_t jobs_started;
    /**
     * Jobs that panicked or used up their stacks.
     */
    uint64_t jobs_died;
    /**
     * The median from a miss to the job's being able to go on, in nanoseconds.
     */
    uint64_t miss_p50_ns;
    /**
     * The 99th percentile of that time, in nanoseconds.
     */
    uint64_t miss_p99_ns;
} fulgurite_statistics;

/**
 * What an allocator has handed out, and what its pages have met. Later versions add members at the
 * end.
 */
typedef struct {
    /**
     * Bytes of blocks, as rounded up.
     */
    uint64_t used_bytes;
    /**
     * Bytes of the pages that hold them.
     */
    uint64_t mapped_bytes;
    /**
     * Accesses that found their page missing.
     */
    uint64_t faults;
    /**
     * Of these, how many read flash.
     */
    uint64_t reads;
    /**
     * Pages that left DRAM unchanged.
     */
    uint64_t evicted_clean;
    /**
     * Pages that left DRAM and were written.
     */
    uint64_t evicted_dirty;
    /**
     * Reads and writes of flash that failed.
     */
    uint64_t errors;
    /**
     * How long threads waited for pages, all together, in nanoseconds.
     */
    uint64_t waited_ns;
    /**
     * The most memory that the process had when it was measured, in bytes.
     */
    uint64_t peak_bytes;
    /**
     * Of the faults, how many a worker waited for: a job touched a page, and the other jobs of its
     * worker waited as well.
     */
    uint64_t faults_of_workers;
} fulgurite_allocator_statistics;

/**
 * What objects have met. Later versions add members at the end.
 */
typedef struct {
    /**
     * Objects that are handed out.
     */
    uint64_t objects;
    /**
     * Accesses that found their object without a page.
     */
    uint64_t faults;
    /**
     * Of these, how many read flash.
     */
    uint64_t reads;
    /**
     * Pages that left DRAM with their object unchanged.
     */
    uint64_t left_clean;
    /**
     * Pages that left DRAM with their object changed.
     */
    uint64_t left_dirty;
    /**
     * Bytes written to flash.
     */
    uint64_t bytes_written;
    /**
     * Reads and writes of flash that failed.
     */
    uint64_t errors;
    /**
     * How long threads waited for objects, all together, in nanoseconds.
     */
    uint64_t waited_ns;
    /**
     * Of the faults, how many a worker waited for: a job touched an object, and the other jobs of
     * its worker waited as well.
     */
    uint64_t faults_of_workers;
    /**
     * States of a pool that the library made durable by itself, because room was short.
     */
    uint64_t own_syncs;
    /**
     * Of the faults, how many a job waited for while other jobs of its worker ran
     * (fulgurite_copy()).
     */
    uint64_t faults_switched;
} fulgurite_objects_statistics;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns a sentence for a status, which lasts as long as the program. A number that is no status
 * has a sentence, too.
 */
const char *fulgurite_strerror(int status);

/**
 * Returns what the last call of this thread that failed has to say: what failed, where, and what
 * to do. It is empty before the first. The text lasts until the next call of this thread that
 * fails. In a job, read it before the next call.
 */
const char *fulgurite_last_message(void);

/**
 * Makes options: no medium, 64 MiB of DRAM, one worker of 32 fibers with stacks of 128 KiB, and
 * the default durability of pools. A crash leaves the last state whose fulgurite_sync() returned,
 * or a later one, because a pool syncs by itself before a limit would stop writers.
 *
 * Never returns NULL. Free it with fulgurite_options_free().
 */
fulgurite_options *fulgurite_options_new(void);

/**
 * Frees options. NULL is none.
 */
void fulgurite_options_free(fulgurite_options *options);

/**
 * Chooses a pool, which outlives the program, in a file or on a block device. When there is no
 * such file and a size was set, fulgurite_open() creates it. Any file of a pool that spans several
 * will do.
 */
fulgurite_status fulgurite_options_pool(fulgurite_options *options, const char *path);

/**
 * Chooses a file or block device that is overwritten and keeps nothing. When there is no such file
 * and a size was set, fulgurite_open() creates it.
 */
fulgurite_status fulgurite_options_flat(fulgurite_options *options, const char *path);

/**
 * Chooses a device that another process serves (fulgurite device serve), by its socket. With
 * `keeps` it is the pool of the device's store, else flat memory that keeps nothing.
 */
fulgurite_status fulgurite_options_device(fulgurite_options *options,
                                          const char *socket,
                                          bool keeps);

/**
 * Chooses plain memory of the size that was set, for tests. It keeps nothing.
 */
fulgurite_status fulgurite_options_memory(fulgurite_options *options);

/**
 * Chooses a device of the size that was set, with the latencies of flash, which a thread of this
 * process plays. It keeps nothing.
 */
fulgurite_status fulgurite_options_emulated(fulgurite_options *options);

/**
 * Sets the size of what is created, as text: a number with K, M, G or T (powers of 1024). It is a
 * multiple of 64 KiB. Programs get about five sixths of a large pool.
 *
 * Fails with FULGURITE_BAD_OPTION when the text is no size.
 */
fulgurite_status fulgurite_options_size(fulgurite_options *options, const char *size);

/**
 * Sets the size of what is created, in bytes.
 */
fulgurite_status fulgurite_options_size_bytes(fulgurite_options *options, uint64_t bytes);

/**
 * Sets the DRAM budget, as text ("512M"): a hard cap on frames, tables, stacks and rings.
 *
 * Fails with FULGURITE_BAD_OPTION when the text is no size.
 */
fulgurite_status fulgurite_options_dram(fulgurite_options *options, const char *size);

/**
 * Sets the DRAM budget, in bytes.
 */
fulgurite_status fulgurite_options_dram_bytes(fulgurite_options *options, uint64_t bytes);

/**
 * Sets how much of the DRAM budget holds the keys and records of maps (fulgurite_map), as text. By
 * default none, and the pool has no maps. At least a mebibyte.
 *
 * Fails with FULGURITE_BAD_OPTION when the text is no size.
 */
fulgurite_status fulgurite_options_record_cache(fulgurite_options *options, const char *size);

/**
 * Sets how much of the DRAM budget holds the keys and records of maps, in bytes.
 */
fulgurite_status fulgurite_options_record_cache_bytes(fulgurite_options *options, uint64_t bytes);

/**
 * Sets how many threads run jobs.
 */
fulgurite_status fulgurite_options_workers(fulgurite_options *options, size_t count);

/**
 * Sets how many jobs each worker runs at once, and the bytes of stack of each. The DRAM budget
 * pays for the stacks. A callback that prints needs some 16 KiB.
 */
fulgurite_status fulgurite_options_fibers(fulgurite_options *options,
                                          size_t count,
                                          size_t stack_bytes);

/**
 * Promises of a pool the last state whose fulgurite_sync() returned, after a crash or a power
 * failure. Nothing else syncs but fulgurite_close(), so a writer past a limit gets
 * FULGURITE_NO_SPACE.
 */
fulgurite_status fulgurite_options_durability_sync(fulgurite_options *options);

/**
 * Has a thread sync a pool by itself, about every `milliseconds` or `bytes` changed, whichever
 * comes first.
 */
fulgurite_status fulgurite_options_durability_lazy(fulgurite_options *options,
                                                   uint64_t milliseconds,
                                                   uint64_t bytes);

/**
 * Promises nothing of a pool, which may be empty after a crash or a close. It has no tokens.
 */
fulgurite_status fulgurite_options_durability_cache(fulgurite_options *options);

/**
 * Sets how many of the newest tokens a pool keeps, in addition to pinned ones. By default it is 1,
 * which is the least.
 */
fulgurite_status fulgurite_options_keep_tokens(fulgurite_options *options, size_t count);

/**
 * Puts a device of this process before the medium: a thread that does what the store and the
 * kernel ask for, on a core that it keeps busy while there are requests.
 */
fulgurite_status fulgurite_options_on_device(fulgurite_options *options);

/**
 * Opens a memory, and starts its workers. The options are not changed, and may be used again.
 *
 * Fails with FULGURITE_BAD_OPTION, before anything is touched, with FULGURITE_CANNOT_OPEN, and
 * with FULGURITE_NO_MEMORY. Then `*pool` is NULL.
 */
fulgurite_status fulgurite_open(const fulgurite_options *options, fulgurite_pool **pool);

/**
 * Closes a memory and frees its handle. A pool is synced before. Calls of other threads end first,
 * as do jobs that have started. What those write after this call began is lost, so wait for them
 * before. Other handles of the memory say FULGURITE_CLOSED from then on, and are still to be
 * freed. NULL is none.
 *
 * A child after fork() has no workers: there, this and every other function that takes a handle
 * of the memory fails with FULGURITE_FORKED, and the parent goes on.
 *
 * When the sync fails, with the errors of fulgurite_sync(), the pool stays open: make room and
 * close it again, or call fulgurite_abandon().
 */
fulgurite_status fulgurite_close(fulgurite_pool *pool);

/**
 * Closes a memory and frees its handle, whether or not it can be synced. NULL is none.
 *
 * Fails with FULGURITE_IN_A_JOB and FULGURITE_FORKED only.
 */
fulgurite_status fulgurite_abandon(fulgurite_pool *pool);

/**
 * Makes the state of everything durable, and stores its token, unless `token` is NULL. The state
 * is one between write sections. It waits for those that are open, and not for jobs.
 *
 * Fails with FULGURITE_NO_POOL, with FULGURITE_BAD_OPTION for a pool that is only a cache, with
 * FULGURITE_NO_SPACE and FULGURITE_BUSY, after which it may be tried again, with FULGURITE_IO and
 * FULGURITE_POISONED, after which the pool takes no more changes, and with FULGURITE_IN_A_JOB.
 */
fulgurite_status fulgurite_sync(fulgurite_pool *pool, uint64_t *token);

/**
 * Makes the state of a token again, in DRAM and in the pool. Newer tokens are gone. Handles of
 * what that state does not have say FULGURITE_POISONED from then on.
 *
 * Fails with FULGURITE_NOT_FOUND when there is no such token, and with FULGURITE_BUSY when a newer
 * one is pinned or being read, or when jobs hold pins: nothing has changed then. After
 * FULGURITE_POISONED the pool is to be closed and opened again.
 */
fulgurite_status fulgurite_roll_back(fulgurite_pool *pool, uint64_t token);

/**
 * Stores up to `capacity` of the tokens that are kept, oldest first, and in `*count` how many
 * there are. `tokens` may be NULL when `capacity` is 0.
 *
 * Fails with FULGURITE_BUFFER_TOO_SMALL when there are more: the oldest were stored.
 */
fulgurite_status fulgurite_tokens(fulgurite_pool *pool,
                                  uint64_t *tokens,
                                  size_t capacity,
                                  size_t *count);

/**
 * Keeps a token whatever comes, or no longer.
 *
 * Fails with FULGURITE_NOT_FOUND when there is no such token, and with FULGURITE_IO.
 */
fulgurite_status fulgurite_pin_token(fulgurite_pool *pool, uint64_t token, bool pinned);

/**
 * Shows each name of a pool to `visit`, in no order. The visitor may call every function.
 *
 * Fails with FULGURITE_NO_POOL, FULGURITE_CORRUPT and FULGURITE_IO.
 */
fulgurite_status fulgurite_names(fulgurite_pool *pool, fulgurite_name_visitor visit, void *user);

/**
 * Removes what has a name, and frees its space. Its handles say FULGURITE_POISONED from then on.
 *
 * Fails with FULGURITE_NOT_FOUND, with FULGURITE_NO_SPACE when there is no room for the change
 * before the next sync, and with FULGURITE_BUSY when jobs have some of it pinned.
 */
fulgurite_status fulgurite_remove(fulgurite_pool *pool, const char *name);

/**
 * Changes the DRAM budget of an open memory, in bytes. It may become smaller, and as large again
 * as it was when the memory was opened.
 *
 * Fails with FULGURITE_BAD_OPTION when it is too small or too large.
 */
fulgurite_status fulgurite_set_dram_bytes(fulgurite_pool *pool, uint64_t bytes);

/**
 * Lets other jobs of the worker run, if there are any.
 *
 * Fails with FULGURITE_CANCELLED or FULGURITE_DEADLINE_EXCEEDED when the job should end.
 */
fulgurite_status fulgurite_yield(fulgurite_context *context);

/**
 * Copies bytes from or to objects or blocks of an allocator, or from one to the other. While an
 * object is read from flash, other jobs of the worker run, where objects are in line
 * (FULGURITE_OBJECTS_IN_LINE). A plain access waits with the worker. The ranges must not overlap,
 * and other jobs must not change them meanwhile.
 *
 * Fails with FULGURITE_OUT_OF_RANGE for more bytes than any memory has. A context of NULL is
 * refused with FULGURITE_INVALID_ARGUMENT, also outside of jobs.
 */
fulgurite_status fulgurite_copy(fulgurite_context *context,
                                void *to,
                                const void *from,
                                size_t bytes);

/**
 * Opens a write section: a token has all that the job writes until the section ends, or none of
 * it. Sections nest. A sync waits for those that are open, so keep them short. A section that is
 * open at the end of the job ends there.
 *
 * Fails with FULGURITE_CANCELLED or FULGURITE_DEADLINE_EXCEEDED when the job should end.
 */
fulgurite_status fulgurite_section_begin(fulgurite_context *context);

/**
 * Ends the write section that was opened last.
 *
 * Fails with FULGURITE_INVALID_ARGUMENT when none is open.
 */
fulgurite_status fulgurite_section_end(fulgurite_context *context);

/**
 * Opens the map of this name, or makes it where the name is new. The pool needs DRAM for records
 * (fulgurite_options_record_cache()).
 *
 * Fails with FULGURITE_BAD_OPTION without that, with FULGURITE_WRONG_TYPE when the name leads to
 * something else, with FULGURITE_NO_SPACE, FULGURITE_NO_POOL and FULGURITE_IN_A_JOB. Then `*map`
 * is NULL.
 */
fulgurite_status fulgurite_map_open(fulgurite_pool *pool, const char *name, fulgurite_map **map);

/**
 * Frees a handle. The map stays in its pool. NULL is none.
 */
void fulgurite_map_free(fulgurite_map *map);

/**
 * Copies the value of a key into a buffer, and stores the value's length in `*length`.
 *
 * Fails with FULGURITE_NOT_FOUND, and with FULGURITE_BUFFER_TOO_SMALL when the value is longer
 * than `capacity`: `*length` is stored, and the buffer has its beginning. `capacity` may be 0.
 */
fulgurite_status fulgurite_map_get(fulgurite_map *map,
                                   const void *key,
                                   size_t key_length,
                                   void *buffer,
                                   size_t capacity,
                                   size_t *length);

/**
 * Sets the value of a key, whether or not it has one.
 *
 * Fails with FULGURITE_NO_SPACE, with FULGURITE_TOO_LONG, and with FULGURITE_NO_MEMORY when the
 * keys of all maps have taken four fifths of the DRAM for records. The old value is still there
 * then.
 */
fulgurite_status fulgurite_map_put(fulgurite_map *map,
                                   const void *key,
                                   size_t key_length,
                                   const void *value,
                                   size_t value_length);

/**
 * Removes a key and its value.
 *
 * Fails with FULGURITE_NOT_FOUND, and with FULGURITE_NO_SPACE.
 */
fulgurite_status fulgurite_map_remove(fulgurite_map *map, const void *key, size_t key_length);

/**
 * Opens the blobs of this name, or makes them where the name is new, for `bytes` of keys and
 * values. In a pool that packs objects, `capacity` values of up to 4 KiB are objects. Both count
 * only when they are made. In memory that keeps nothing, `name` is NULL.
 *
 * Fails with FULGURITE_WRONG_TYPE when the name leads to something else, with FULGURITE_NO_SPACE,
 * FULGURITE_NO_POOL and FULGURITE_IN_A_JOB. Then `*blobs` is NULL.
 */
fulgurite_status fulgurite_blobs_open(fulgurite_pool *pool,
                                      const char *name,
                                      uint64_t capacity,
                                      uint64_t bytes,
                                      fulgurite_blobs **blobs);

/**
 * Frees a handle. The blobs stay in their pool. NULL is none.
 */
void fulgurite_blobs_free(fulgurite_blobs *blobs);

/**
 * Copies the value of a key into a buffer, and stores the value's length in `*length`. The bytes
 * are of one state of the value.
 *
 * Fails with FULGURITE_NOT_FOUND, and with FULGURITE_BUFFER_TOO_SMALL when the value is longer
 * than `capacity`: `*length` is stored, and the buffer has its beginning. `capacity` may be 0.
 */
fulgurite_status fulgurite_blobs_get(fulgurite_context *context,
                                     fulgurite_blobs *blobs,
                                     const void *key,
                                     size_t key_length,
                                     void *buffer,
                                     size_t capacity,
                                     size_t *length);

/**
 * Stores the length of the value of a key in `*length`.
 *
 * Fails with FULGURITE_NOT_FOUND.
 */
fulgurite_status fulgurite_blobs_length(fulgurite_context *context,
                                        fulgurite_blobs *blobs,
                                        const void *key,
                                        size_t key_length,
                                        size_t *length);

/**
 * Copies the bytes of a value from `offset` on, as much as there is and `capacity` allows, and
 * stores in `*copied` how many bytes that are: 0 from the end of the value on.
 *
 * Fails with FULGURITE_NOT_FOUND.
 */
fulgurite_status fulgurite_blobs_read_at(fulgurite_context *context,
                                         fulgurite_blobs *blobs,
                                         const void *key,
                                         size_t key_length,
                                         size_t offset,
                                         void *buffer,
                                         size_t capacity,
                                         size_t *copied);

/**
 * Sets the value of a key, of 0 bytes to 1 GiB, whether or not it has one.
 *
 * Fails with FULGURITE_NO_SPACE and FULGURITE_TOO_LONG. The old value is still there then.
 */
fulgurite_status fulgurite_blobs_put(fulgurite_context *context,
                                     fulgurite_blobs *blobs,
                                     const void *key,
                                     size_t key_length,
                                     const void *value,
                                     size_t value_length);

/**
 * Removes a key and its value.
 *
 * Fails with FULGURITE_NOT_FOUND.
 */
fulgurite_status fulgurite_blobs_remove(fulgurite_context *context,
                                        fulgurite_blobs *blobs,
                                        const void *key,
                                        size_t key_length);

/**
 * Appends to the value of a key, which counts as empty when there is none, and stores its new
 * length, unless `length` is NULL. Mostly only the appended bytes are written.
 *
 * Fails as fulgurite_blobs_put().
 */
fulgurite_status fulgurite_blobs_append(fulgurite_context *context,
                                        fulgurite_blobs *blobs,
                                        const void *key,
                                        size_t key_length,
                                        const void *bytes,
                                        size_t bytes_length,
                                        size_t *length);

/**
 * Changes bytes of a value in place, from `offset` on.
 *
 * Fails with FULGURITE_NOT_FOUND when they are not inside a value of the key, and as
 * fulgurite_blobs_put(). Nothing has changed then.
 */
fulgurite_status fulgurite_blobs_write_at(fulgurite_context *context,
                                          fulgurite_blobs *blobs,
                                          const void *key,
                                          size_t key_length,
                                          size_t offset,
                                          const void *bytes,
                                          size_t bytes_length);

/**
 * Sets the value of a key if it is the expected one now. NULL expects that there is none.
 *
 * Fails with FULGURITE_DIFFERENT, and as fulgurite_blobs_put(). Nothing has changed then.
 */
fulgurite_status fulgurite_blobs_compare_and_put(fulgurite_context *context,
                                                 fulgurite_blobs *blobs,
                                                 const void *key,
                                                 size_t key_length,
                                                 const void *expected,
                                                 size_t expected_length,
                                                 const void *value,
                                                 size_t value_length);

/**
 * Shows up to `limit` keys from `from` on and their values, ascending, until the visitor returns
 * 0, and stores how many it showed, unless `shown` is NULL. Each value is whole and was there when
 * it was read. Different ones may be of different times.
 *
 * Fails as fulgurite_blobs_get(), except for missing keys. What was shown before was right.
 */
fulgurite_status fulgurite_blobs_scan(fulgurite_context *context,
                                      fulgurite_blobs *blobs,
                                      const void *from,
                                      size_t from_length,
                                      size_t limit,
                                      fulgurite_blob_visitor visit,
                                      void *user,
                                      size_t *shown);

/**
 * Opens the blobs of this name, or makes them where the name is new, for about `capacity` keys and
 * `bytes` of values. Both count only when they are made. In memory that keeps nothing, `name` is
 * NULL.
 *
 * Fails with FULGURITE_WRONG_TYPE when the name leads to something else, with FULGURITE_NO_SPACE,
 * FULGURITE_NO_POOL and FULGURITE_IN_A_JOB. Then `*blobs` is NULL.
 */
fulgurite_status fulgurite_u64_blobs_open(fulgurite_pool *pool,
                                          const char *name,
                                          uint64_t capacity,
                                          uint64_t bytes,
                                          fulgurite_u64_blobs **blobs);

/**
 * Frees a handle. The blobs stay in their pool. NULL is none.
 */
void fulgurite_u64_blobs_free(fulgurite_u64_blobs *blobs);

/**
 * Copies the value of a key into a buffer, and stores the value's length in `*length`. The bytes
 * are of one state of the value.
 *
 * Fails with FULGURITE_NOT_FOUND, and with FULGURITE_BUFFER_TOO_SMALL when the value is longer
 * than `capacity`: `*length` is stored, and the buffer has its beginning. `capacity` may be 0.
 */
fulgurite_status fulgurite_u64_blobs_get(fulgurite_context *context,
                                         fulgurite_u64_blobs *blobs,
                                         uint64_t key,
                                         void *buffer,
                                         size_t capacity,
                                         size_t *length);

/**
 * Stores the length of the value of a key in `*length`.
 *
 * Fails with FULGURITE_NOT_FOUND.
 */
fulgurite_status fulgurite_u64_blobs_length(fulgurite_context *context,
                                            fulgurite_u64_blobs *blobs,
                                            uint64_t key,
                                            size_t *length);

/**
 * Copies the bytes of a value from `offset` on, as much as there is and `capacity` allows, and
 * stores in `*copied` how many bytes that are: 0 from the end of the value on.
 *
 * Fails with FULGURITE_NOT_FOUND.
 */
fulgurite_status fulgurite_u64_blobs_read_at(fulgurite_context *context,
                                             fulgurite_u64_blobs *blobs,
                                             uint64_t key,
                                             size_t offset,
                                             void *buffer,
                                             size_t capacity,
                                             size_t *copied);

/**
 * Sets the value of a key, of 0 bytes to 1 GiB, whether or not it has one.
 *
 * Fails with FULGURITE_NO_SPACE and FULGURITE_TOO_LONG. The old value is still there then.
 */
fulgurite_status fulgurite_u64_blobs_put(fulgurite_context *context,
                                         fulgurite_u64_blobs *blobs,
                                         uint64_t key,
                                         const void *value,
                                         size_t value_length);

/**
 * Removes a key and its value.
 *
 * Fails with FULGURITE_NOT_FOUND.
 */
fulgurite_status fulgurite_u64_blobs_remove(fulgurite_context *context,
                                            fulgurite_u64_blobs *blobs,
                                            uint64_t key);

/**
 * Appends to the value of a key, which counts as empty when there is none, and stores its new
 * length, unless `length` is NULL. Mostly only the appended bytes are written.
 *
 * Fails as fulgurite_u64_blobs_put().
 */
fulgurite_status fulgurite_u64_blobs_append(fulgurite_context *context,
                                            fulgurite_u64_blobs *blobs,
                                            uint64_t key,
                                            const void *bytes,
                                            size_t bytes_length,
                                            size_t *length);

/**
 * Changes bytes of a value in place, from `offset` on.
 *
 * Fails with FULGURITE_NOT_FOUND when they are not inside a value of the key, and as
 * fulgurite_u64_blobs_put(). Nothing has changed then.
 */
fulgurite_status fulgurite_u64_blobs_write_at(fulgurite_context *context,
                                              fulgurite_u64_blobs *blobs,
                                              uint64_t key,
                                              size_t offset,
                                              const void *bytes,
                                              size_t bytes_length);

/**
 * Sets the value of a key if it is the expected one now. NULL expects that there is none.
 *
 * Fails with FULGURITE_DIFFERENT, and as fulgurite_u64_blobs_put(). Nothing has changed then.
 */
fulgurite_status fulgurite_u64_blobs_compare_and_put(fulgurite_context *context,
                                                     fulgurite_u64_blobs *blobs,
                                                     uint64_t key,
                                                     const void *expected,
                                                     size_t expected_length,
                                                     const void *value,
                                                     size_t value_length);

/**
 * Shows every key and the length of its value, in no order. Keys may come and go meanwhile.
 *
 * Fails as fulgurite_u64_blobs_get(), except for missing keys. What was shown before was right.
 */
fulgurite_status fulgurite_u64_blobs_keys(fulgurite_context *context,
                                          fulgurite_u64_blobs *blobs,
                                          fulgurite_u64_visitor visit,
                                          void *user);

/**
 * Opens the region of this name, or makes one of `bytes` where the name is new. A region that
 * exists keeps its size. In memory that keeps nothing, `name` is NULL.
 *
 * Fails with FULGURITE_WRONG_TYPE when the name leads to something else, with FULGURITE_NO_SPACE,
 * FULGURITE_OUT_OF_RANGE, FULGURITE_NO_POOL and FULGURITE_IN_A_JOB. Then `*region` is NULL.
 */
fulgurite_status fulgurite_region_open(fulgurite_pool *pool,
                                       const char *name,
                                       uint64_t bytes,
                                       fulgurite_region **region);

/**
 * Frees a handle. The region stays in its pool. NULL is none.
 */
void fulgurite_region_free(fulgurite_region *region);

/**
 * Returns how many bytes a region has. NULL has none.
 */
uint64_t fulgurite_region_bytes(const fulgurite_region *region);

/**
 * Copies `length` bytes from `offset` on into a buffer.
 *
 * Fails with FULGURITE_OUT_OF_RANGE when they are not all inside, and with FULGURITE_POISONED when
 * the region was rolled back or removed.
 */
fulgurite_status fulgurite_region_read_at(fulgurite_context *context,
                                          fulgurite_region *region,
                                          uint64_t offset,
                                          void *buffer,
                                          size_t length);

/**
 * Copies `length` bytes of a buffer to `offset`.
 *
 * Fails as fulgurite_region_read_at(), and with FULGURITE_NO_SPACE. After the latter some of the
 * bytes may have been written.
 */
fulgurite_status fulgurite_region_write_at(fulgurite_context *context,
                                           fulgurite_region *region,
                                           uint64_t offset,
                                           const void *bytes,
                                           size_t length);

/**
 * Changes what may be done with pages of a region. `offset` is a multiple of 65536, and so is
 * `bytes`, unless they end with the region. `permissions` is a sum of FULGURITE_MAY_READ and
 * FULGURITE_MAY_WRITE. Pages have both until others are set. They are part of the state: the next
 * sync keeps them, and a roll back takes them back. What they do not allow fails with
 * FULGURITE_NOT_PERMITTED.
 *
 * Fails with FULGURITE_INVALID_ARGUMENT for other bits and for parts of pages, with
 * FULGURITE_OUT_OF_RANGE, FULGURITE_NO_POOL in memory that keeps nothing, FULGURITE_NO_SPACE,
 * FULGURITE_POISONED when the region was rolled back or removed, and with FULGURITE_BUSY while a
 * job holds some of the pages. Nothing has changed then.
 */
fulgurite_status fulgurite_region_set_permissions(fulgurite_region *region,
                                                  uint64_t offset,
                                                  uint64_t bytes,
                                                  uint32_t permissions);

/**
 * Stores in `*permissions` what may be done with the page at an offset of a region, as
 * fulgurite_region_set_permissions() takes it.
 *
 * Fails with FULGURITE_OUT_OF_RANGE, FULGURITE_NO_POOL in memory that keeps nothing, and
 * FULGURITE_POISONED when the region was rolled back or removed.
 */
fulgurite_status fulgurite_region_permissions(fulgurite_region *region,
                                              uint64_t offset,
                                              uint32_t *permissions);

/**
 * Opens the heap of this name, or makes one of `bytes` where the name is new. In memory that keeps
 * nothing, `name` is NULL.
 *
 * Fails with FULGURITE_WRONG_TYPE when the name leads to something else, with FULGURITE_NO_SPACE,
 * FULGURITE_NO_POOL and FULGURITE_IN_A_JOB. Then `*heap` is NULL.
 */
fulgurite_status fulgurite_heap_open(fulgurite_pool *pool,
                                     const char *name,
                                     uint64_t bytes,
                                     fulgurite_heap **heap);

/**
 * Frees a handle. The heap stays in its pool. NULL is none.
 */
void fulgurite_heap_free(fulgurite_heap *heap);

/**
 * Allocates `bytes`, aligned to 8 bytes, and stores their address. They have earlier contents.
 *
 * Fails with FULGURITE_NO_SPACE, and with FULGURITE_POISONED when the heap was rolled back or
 * removed.
 */
fulgurite_status fulgurite_heap_allocate(fulgurite_context *context,
                                         fulgurite_heap *heap,
                                         size_t bytes,
                                         uint64_t *address);

/**
 * Takes back what fulgurite_heap_allocate() gave for as many bytes.
 *
 * Fails with FULGURITE_CORRUPT when no such object was given, where that can be detected. An
 * object that is freed twice is found later, if at all.
 */
fulgurite_status fulgurite_heap_release(fulgurite_context *context,
                                        fulgurite_heap *heap,
                                        uint64_t address,
                                        size_t bytes);

/**
 * Copies `length` bytes at an address of the heap into a buffer.
 *
 * Fails with FULGURITE_OUT_OF_RANGE when they are not all in this heap, and with
 * FULGURITE_POISONED when it was rolled back or removed.
 */
fulgurite_status fulgurite_heap_read(fulgurite_context *context,
                                     fulgurite_heap *heap,
                                     uint64_t address,
                                     void *buffer,
                                     size_t length);

/**
 * Copies `length` bytes of a buffer to an address of the heap.
 *
 * Fails as fulgurite_heap_read(), and with FULGURITE_NO_SPACE. After the latter some of the bytes
 * may have been written.
 */
fulgurite_status fulgurite_heap_write(fulgurite_context *context,
                                      fulgurite_heap *heap,
                                      uint64_t address,
                                      const void *bytes,
                                      size_t length);

/**
 * Opens the root of this name, or makes one that holds `first` where the name is new.
 *
 * Fails with FULGURITE_WRONG_TYPE when the name leads to something else, with FULGURITE_NO_SPACE,
 * FULGURITE_NO_POOL and FULGURITE_IN_A_JOB. Then `*root` is NULL.
 */
fulgurite_status fulgurite_root_open(fulgurite_pool *pool,
                                     const char *name,
                                     uint64_t first,
                                     fulgurite_root **root);

/**
 * Frees a handle. The root stays in its pool. NULL is none.
 */
void fulgurite_root_free(fulgurite_root *root);

/**
 * Stores the number of a root in `*value`.
 *
 * Fails with FULGURITE_POISONED when it was rolled back or removed.
 */
fulgurite_status fulgurite_root_load(fulgurite_context *context,
                                     fulgurite_root *root,
                                     uint64_t *value);

/**
 * Changes the number of a root.
 *
 * Fails as fulgurite_root_load(), and with FULGURITE_NO_SPACE.
 */
fulgurite_status fulgurite_root_store(fulgurite_context *context,
                                      fulgurite_root *root,
                                      uint64_t value);

/**
 * Submits a job. `user` is passed on to the callback. After `deadline_milliseconds`, unless that
 * is 0, its calls fail with FULGURITE_DEADLINE_EXCEEDED.
 *
 * Fails with FULGURITE_OVERLOADED and FULGURITE_IN_A_JOB. Then `*job` is NULL, and nothing runs.
 */
fulgurite_status fulgurite_submit(fulgurite_pool *pool,
                                  fulgurite_callback callback,
                                  void *user,
                                  uint64_t deadline_milliseconds,
                                  fulgurite_job **job);

/**
 * Submits a job, waits for it, and stores what its callback returned, unless `result` is NULL.
 *
 * Fails as fulgurite_submit() and fulgurite_job_wait().
 */
fulgurite_status fulgurite_run(fulgurite_pool *pool,
                               fulgurite_callback callback,
                               void *user,
                               int *result);

/**
 * Waits for a job, frees its handle, and stores what its callback returned, unless `result` is
 * NULL. From any thread that is no worker.
 *
 * Fails with FULGURITE_STACK_OVERFLOW when the job used up its stack, and with
 * FULGURITE_CANCELLED, FULGURITE_DEADLINE_EXCEEDED or FULGURITE_CLOSED when it never began. The
 * handle stays only after FULGURITE_INVALID_ARGUMENT and FULGURITE_IN_A_JOB.
 */
fulgurite_status fulgurite_job_wait(fulgurite_job *job, int *result);

/**
 * Makes the calls of a job fail with FULGURITE_CANCELLED, from its next miss or wait on. A job
 * that has not begun never does. The handle stays.
 */
fulgurite_status fulgurite_job_cancel(fulgurite_job *job);

/**
 * Stores whether a job has ended.
 */
fulgurite_status fulgurite_job_has_ended(const fulgurite_job *job, bool *ended);

/**
 * Frees the handle of a job, which goes on. NULL is none.
 */
void fulgurite_job_free(fulgurite_job *job);

/**
 * Stores what a memory has counted. `size` is sizeof(fulgurite_statistics): a program that was
 * built with an older header gets the members that it knows.
 *
 * Fails with FULGURITE_IN_A_JOB.
 */
fulgurite_status fulgurite_get_statistics(fulgurite_pool *pool,
                                          fulgurite_statistics *statistics,
                                          size_t size);

/**
 * Copies what a memory has counted as Prometheus text (version 0.0.4), with a 0 at its end, and
 * stores its length without that in `*length`.
 *
 * Fails with FULGURITE_BUFFER_TOO_SMALL when it and the 0 do not fit: `*length` is stored. Fails
 * with FULGURITE_IN_A_JOB.
 */
fulgurite_status fulgurite_prometheus(fulgurite_pool *pool,
                                      char *buffer,
                                      size_t capacity,
                                      size_t *length);

/**
 * Starts an allocator over flash of the medium and size that the options name. Its contents are
 * overwritten. A file that it creates loses its name at once, and is gone with the process. The
 * DRAM budget is a cap on all memory of the process, with what it has elsewhere.
 *
 * Fails with FULGURITE_BAD_OPTION, also for a pool or too little DRAM, with FULGURITE_CANNOT_OPEN,
 * and with FULGURITE_NOT_PERMITTED where the machine lets this process handle no faults
 * (userfaultfd). Then `*allocator` is NULL.
 */
fulgurite_status fulgurite_allocator_start(const fulgurite_options *options,
                                           fulgurite_allocator **allocator);

/**
 * As fulgurite_allocator_start(), and the thread that touches a missing page fills it in by
 * itself, by a handler of SIGBUS. That costs less, and needs no right to userfaultfd: where it is
 * refused, the signal is SIGSEGV. The program's own handlers of these are called for its own
 * faults, if they were set before. A system call that is given a missing page fails with EFAULT.
 *
 * Fails as fulgurite_allocator_start(), but for FULGURITE_NOT_PERMITTED.
 */
fulgurite_status fulgurite_allocator_start_in_line(const fulgurite_options *options,
                                                   fulgurite_allocator **allocator);

/**
 * Allocates a block of `bytes`, aligned to 16, with any contents. A block of 0 bytes has an
 * address of its own, too.
 *
 * Returns NULL when the flash has no room, with a message.
 */
void *fulgurite_malloc(fulgurite_allocator *allocator, size_t bytes);

/**
 * Allocates a block of `count` times `bytes` zeros, aligned to 16.
 *
 * Returns NULL when the flash has no room or the product is no size, with a message.
 */
void *fulgurite_calloc(fulgurite_allocator *allocator, size_t count, size_t bytes);

/**
 * Allocates a block of `bytes`, aligned to a power of two, with any contents.
 *
 * Returns NULL when the flash has no room, or `alignment` is no power of two, with a message.
 */
void *fulgurite_aligned_alloc(fulgurite_allocator *allocator, size_t alignment, size_t bytes);

/**
 * Resizes a block, which may move, with the contents that fit. The block is aligned to 16. NULL as
 * the block allocates one.
 *
 * Returns NULL when the flash has no room, or there is no such block in use, with a message. The
 * block is as it was then.
 */
void *fulgurite_realloc(fulgurite_allocator *allocator, void *old, size_t bytes);

/**
 * Frees a block, from any thread. NULL is none.
 *
 * Fails with FULGURITE_INVALID_ARGUMENT when no block in use begins there. Nothing is freed then.
 */
fulgurite_status fulgurite_free(fulgurite_allocator *allocator, void *old);

/**
 * Stores in `*bytes` how many bytes a block has, which may be more than were asked for.
 *
 * Fails with FULGURITE_INVALID_ARGUMENT when no block in use begins there.
 */
fulgurite_status fulgurite_usable_size(fulgurite_allocator *allocator,
                                       const void *old,
                                       size_t *bytes);

/**
 * Cuts a block in two: one of `first_bytes`, a multiple of 4096, and one of the rest. Each is a
 * block by itself from then on. Only blocks of more than 4096 bytes are of whole pages.
 *
 * Fails with FULGURITE_INVALID_ARGUMENT when no block of more whole pages begins there.
 */
fulgurite_status fulgurite_split(fulgurite_allocator *allocator, void *old, size_t first_bytes);

/**
 * Makes one block of two blocks of whole pages. The second begins where the first ends.
 *
 * Fails with FULGURITE_INVALID_ARGUMENT when they are not such blocks.
 */
fulgurite_status fulgurite_join(fulgurite_allocator *allocator, void *first, void *second);

/**
 * Drops what whole pages of a block hold. They read as zeros afterwards, and take neither DRAM nor
 * flash. `at` and `bytes` are multiples of 4096.
 *
 * Fails with FULGURITE_INVALID_ARGUMENT when these are not whole pages of one block.
 */
fulgurite_status fulgurite_discard(fulgurite_allocator *allocator, void *at, size_t bytes);

/**
 * Changes what may be done with whole pages of one block: `at` and `bytes` are multiples of 4096,
 * and the block is one of whole pages. `permissions` is a sum of FULGURITE_MAY_READ and
 * FULGURITE_MAY_WRITE, as of fulgurite_region_set_permissions(). What they do not allow is a
 * SIGSEGV. They hold until others are set or the block is freed. A block of which some may not be
 * read must not be resized.
 *
 * Fails with FULGURITE_NO_POOL for FULGURITE_PERMANENT: a block is known by its address, and that
 * is another one in the next run. fulgurite_object_array_set_permanent() makes objects permanent.
 * Fails with FULGURITE_INVALID_ARGUMENT for other bits, for writing without reading, and for what
 * are no whole pages of one block, and with FULGURITE_NO_MEMORY when the process has too many
 * mappings. Nothing has changed then.
 */
fulgurite_status fulgurite_allocator_set_permissions(fulgurite_allocator *allocator,
                                                     void *at,
                                                     size_t bytes,
                                                     uint32_t permissions);

/**
 * Returns whether an address is in the memory of an allocator, in use or not. A child after fork()
 * has none.
 */
bool fulgurite_owns(const fulgurite_allocator *allocator, const void *address);

/**
 * Stores what an allocator has handed out, and what its pages have met. `size` is
 * sizeof(fulgurite_allocator_statistics), as of the program's header.
 */
fulgurite_status fulgurite_allocator_get_statistics(fulgurite_allocator *allocator,
                                                    fulgurite_allocator_statistics *statistics,
                                                    size_t size);

/**
 * Starts an allocator of at most `objects_max` objects over flash of the medium and size that the
 * options name. Contents of a flat medium are overwritten. A flat file that it creates loses its
 * name at once, and is gone with the process. In a pool, which has nothing else in it, objects can
 * be permanent (fulgurite_object_array_set_permanent(), fulgurite_object_pool_named()). Those that
 * are not are gone when the pool is opened again. The DRAM budget is for the objects alone: the
 * program's other memory is not counted. `flags` is 0, or a sum of FULGURITE_OBJECTS_IN_LINE,
 * FULGURITE_OBJECTS_CHECK_OVERRUNS and FULGURITE_OBJECTS_SYNC_ONLY_WHEN_TOLD. Of the options, a
 * pool's count of tokens holds as well. Options of workers and fibers have no effect here.
 *
 * Fails with FULGURITE_BAD_OPTION, also for too little DRAM or flash, a durability, a device of
 * this process, or a count of tokens without a pool. Fails with FULGURITE_INVALID_ARGUMENT for
 * other flags, with FULGURITE_CANNOT_OPEN, also for a pool that has other data, with
 * FULGURITE_CORRUPT when what is known of permanent objects is damaged, and with
 * FULGURITE_NOT_PERMITTED where the machine lets this process handle no faults (userfaultfd). Then
 * `*objects` is NULL.
 */
fulgurite_status fulgurite_objects_start(const fulgurite_options *options,
                                         uint32_t objects_max,
                                         uint32_t flags,
                                         fulgurite_objects **objects);

/**
 * Allocates an object of `bytes`, 1 to FULGURITE_OBJECT_BYTES_MAX, which reads as zeros and begins
 * a page. Objects of one size form a pool.
 *
 * Returns NULL when the flash has no room, there are as many objects as there may be, or no object
 * has that size, with a message.
 */
void *fulgurite_object_alloc(fulgurite_objects *objects, size_t bytes);

/**
 * Allocates an array of `count` objects of `bytes` each, which read as zeros. The object `i`
 * begins `i * FULGURITE_OBJECT_STRIDE` bytes behind the first.
 *
 * Returns NULL as fulgurite_object_alloc() does, and for a count of 0.
 */
void *fulgurite_object_array_alloc(fulgurite_objects *objects, uint32_t count, size_t bytes);

/**
 * Frees an object, from any thread: one by itself, or one of an array. NULL is none.
 *
 * Fails with FULGURITE_INVALID_ARGUMENT when no object in use begins there. Nothing is freed then.
 */
fulgurite_status fulgurite_object_free(fulgurite_objects *objects, void *object);

/**
 * Frees the objects of an array that were not freed one by one. A permanent array loses its name
 * first. NULL is none.
 *
 * Fails with FULGURITE_INVALID_ARGUMENT when no array in use begins there.
 */
fulgurite_status fulgurite_object_array_free(fulgurite_objects *objects, void *array);

/**
 * Stores in `*bytes` how many bytes an object has.
 *
 * Fails with FULGURITE_INVALID_ARGUMENT when no object in use begins there.
 */
fulgurite_status fulgurite_object_size(fulgurite_objects *objects,
                                       const void *object,
                                       size_t *bytes);

/**
 * Stores what objects have met. `size` is sizeof(fulgurite_objects_statistics), as of the
 * program's header.
 */
fulgurite_status fulgurite_objects_get_statistics(fulgurite_objects *objects,
                                                  fulgurite_objects_statistics *statistics,
                                                  size_t size);

/**
 * Makes an array permanent, under a name of 1 to 200 bytes: it is in the states that
 * fulgurite_objects_sync() makes durable from now on. `array` is its first object.
 *
 * Fails with FULGURITE_NO_POOL when the objects' medium keeps nothing, with FULGURITE_WRONG_TYPE
 * when something has the name, and with FULGURITE_NO_SPACE when there are 1,024 names or no room
 * to note it. Fails with FULGURITE_INVALID_ARGUMENT for other names, for an array that has a name,
 * and for what is no array in use. Nothing has changed then.
 */
fulgurite_status fulgurite_object_array_set_permanent(fulgurite_objects *objects,
                                                      void *array,
                                                      const char *name);

/**
 * Makes the array or pool of a name temporary, and frees the name. The objects stay until they are
 * freed or the program ends. States from now on do not have them.
 *
 * Fails with FULGURITE_NOT_FOUND and FULGURITE_NO_POOL.
 */
fulgurite_status fulgurite_objects_set_temporary(fulgurite_objects *objects, const char *name);

/**
 * Finds the permanent array of a name, of `count` objects of `bytes` each, and stores where its
 * first object is. In another run of the program it is elsewhere. Objects of it that were freed
 * one by one are holes: an access gets SIGBUS.
 *
 * Fails with FULGURITE_NOT_FOUND, with FULGURITE_WRONG_TYPE when the name leads to anything else,
 * as the message says, and with FULGURITE_NO_POOL. Then `*array` is NULL.
 */
fulgurite_status fulgurite_object_array_named(fulgurite_objects *objects,
                                              const char *name,
                                              uint32_t count,
                                              size_t bytes,
                                              void **array);

/**
 * Opens the permanent pool of a name, of objects of `bytes` each, which is made where nothing has
 * the name. fulgurite_object_free() frees its objects.
 *
 * Fails with FULGURITE_WRONG_TYPE when the name leads to anything else, with FULGURITE_NO_POOL
 * when the objects' medium keeps nothing, FULGURITE_NO_SPACE when there are 1,024 names, and with
 * FULGURITE_INVALID_ARGUMENT for other names and sizes. Then `*pool` is NULL.
 */
fulgurite_status fulgurite_object_pool_named(fulgurite_objects *objects,
                                             const char *name,
                                             size_t bytes,
                                             fulgurite_object_pool **pool);

/**
 * Frees the handle of a pool. Its objects stay. NULL is none.
 */
void fulgurite_object_pool_free(fulgurite_object_pool *pool);

/**
 * Allocates an object of a pool, which reads as zeros and begins a page.
 *
 * Returns NULL when the pool's medium has no room or there are as many objects as there may be,
 * with a message.
 */
void *fulgurite_object_pool_alloc(fulgurite_object_pool *pool);

/**
 * Sets the root of a pool: an object of it by which a later run finds the others, or NULL. It is
 * so in the states that fulgurite_objects_sync() makes durable from now on. Before an object that
 * is the root is freed, another one is to be set.
 *
 * Fails with FULGURITE_INVALID_ARGUMENT when it is no object in use of the pool, or when the pool
 * was made temporary.
 */
fulgurite_status fulgurite_object_pool_set_root(fulgurite_object_pool *pool, void *root);

/**
 * Returns the root of a pool, or NULL when none was set.
 */
void *fulgurite_object_pool_root(fulgurite_object_pool *pool);

/**
 * Stores a number for an object in use that is the same in every run, and never 0xFFFFFFFF.
 * Objects refer to each other by it, because their addresses differ from run to run. When the
 * object is freed, its number is handed out again.
 *
 * Fails with FULGURITE_INVALID_ARGUMENT when no object in use begins there.
 */
fulgurite_status fulgurite_object_reference(fulgurite_objects *objects,
                                            const void *object,
                                            uint32_t *reference);

/**
 * Returns the object of a number from fulgurite_object_reference(), or NULL with a message when no
 * object in use has it.
 */
void *fulgurite_object_at(fulgurite_objects *objects, uint32_t reference);

/**
 * Makes the state of all permanent objects durable, and stores its token, unless `token` is NULL.
 * Each object is as it was at one moment of the call: threads that change several which belong
 * together are to pause meanwhile. The next run finds this state, whatever ends this one.
 *
 * Where changes since the last state have no more room, the library makes one durable by itself,
 * of objects as they last left DRAM. It takes the place of the last state that this call made.
 * FULGURITE_OBJECTS_SYNC_ONLY_WHEN_TOLD forbids that.
 *
 * Fails with FULGURITE_NO_POOL when the objects' medium keeps nothing, FULGURITE_NO_SPACE, and
 * with FULGURITE_IO and FULGURITE_POISONED. The last state stays.
 */
fulgurite_status fulgurite_objects_sync(fulgurite_objects *objects, uint64_t *token);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FULGURITE_H */
