/* Signals, stacks and threads of a program most of whose memory has left DRAM at any time: its own handlers of SIGSEGV
 * and SIGBUS, these signals blocked, handlers that touch missing pages while their thread does so or allocates, stacks
 * for signals, threads and contexts in such memory, a thousand threads, a storm of condition variables there, and
 * memory that is given back while others touch it. Prints what it found, which must be the same without fulgurite.
 * Argument: MiB of memory. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

enum { PAGE = 4096, STACK = 256 * 1024, MANY = 1000 };

static unsigned char *memory;
static size_t pages;
static uint64_t seed = 1;

static uint64_t next(uint64_t *state) {
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return *state >> 33;
}
static void *map(size_t bytes) {
    void *place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED)
        exit(3);
    return place;
}
/* What byte 7 of a page holds. */
static unsigned char expected(size_t page) { return (unsigned char)(page * 5 + 3); }
static size_t look(uint64_t *state, int count) {
    size_t wrong = 0;
    for (int i = 0; i < count; i++) {
        size_t page = next(state) % pages;
        wrong += memory[page * PAGE + 7] != expected(page);
        memory[page * PAGE + 8 + i % 8] += 1;
    }
    return wrong;
}
static void act(int number, void *handler, int flags) {
    struct sigaction action = {0};
    action.sa_sigaction = (void (*)(int, siginfo_t *, void *))handler;
    action.sa_flags = flags;
    sigfillset(&action.sa_mask);
    if (sigaction(number, &action, NULL))
        exit(4);
}

static sigjmp_buf back;
static volatile sig_atomic_t caught;
static void catches(int number, siginfo_t *info, void *context) {
    (void)context;
    caught += number == SIGSEGV && info->si_addr == (void *)16;
    siglongjmp(back, 1);
}

static unsigned char *barrier;
static volatile sig_atomic_t barriers;
static void opens(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    uintptr_t page = (uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1);
    barriers++;
    mprotect((void *)page, PAGE, PROT_READ | PROT_WRITE);
}

static volatile sig_atomic_t ticks, wrong_ticks;
static uint64_t tick_state = 7;
static void tick(int number) {
    (void)number;
    ticks++;
    wrong_ticks += look(&tick_state, 3) != 0;
}

static volatile sig_atomic_t on_own_stack;
static void on_stack(int number) {
    volatile unsigned char deep[20000];
    memset((void *)deep, number, sizeof deep);
    on_own_stack += deep[19999] == number;
}

static __thread unsigned char own[3 * PAGE];
static size_t recurse(int depth, uint64_t *state) {
    volatile unsigned char here[2000];
    memset((void *)here, depth, sizeof here);
    size_t wrong = depth > 0 ? recurse(depth - 1, state) : look(state, 20);
    return wrong + (here[1999] != (unsigned char)depth);
}
static void *in_stack(void *argument) {
    uint64_t state = (uintptr_t)argument;
    memset(own, 9, sizeof own);
    size_t wrong = recurse(60, &state);
    return (void *)(wrong + (own[3 * PAGE - 1] != 9));
}

static pthread_mutex_t *mutexes;
static uint64_t *counters;
static void *one_of_many(void *argument) {
    uint64_t state = (uintptr_t)argument, wrong = 0;
    for (int i = 0; i < 8; i++) {
        size_t which = next(&state) % 16 * (PAGE / sizeof(uint64_t));
        pthread_mutex_lock(&mutexes[which / 8]);
        counters[which] += 1;
        pthread_mutex_unlock(&mutexes[which / 8]);
        wrong += look(&state, 2);
    }
    return (void *)wrong;
}

/* Each is changed by eight threads in turn. Lock and condition have pages of their own. */
enum { THREADS = 8, CONDITIONS = 64, ROUNDS = 4 };
static struct turns {
    pthread_mutex_t mutex;
    char gap[PAGE - sizeof(pthread_mutex_t)];
    pthread_cond_t condition;
    unsigned turn, order;
    char gap2[PAGE - sizeof(pthread_cond_t) - 2 * sizeof(unsigned)];
} *turns;
static void *takes_turns(void *argument) {
    uint64_t me = (uintptr_t)argument, state = me + 50, wrong = 0;
    for (int i = 0; i < ROUNDS * CONDITIONS; i++) {
        struct turns *here = &turns[i % CONDITIONS];
        pthread_mutex_lock(&here->mutex);
        while (here->turn % THREADS != me)
            pthread_cond_wait(&here->condition, &here->mutex);
        here->turn++;
        here->order = here->order * 31 + (unsigned)me;
        pthread_cond_broadcast(&here->condition);
        pthread_mutex_unlock(&here->mutex);
        wrong += look(&state, 10);
    }
    return (void *)wrong;
}

static ucontext_t main_context, other_context;
static size_t context_wrong;
static void other_body(void) {
    for (int i = 0; i < 20; i++) {
        context_wrong += look(&seed, 10);
        swapcontext(&other_context, &main_context);
    }
}

static volatile int given_back;
static unsigned char *racy;
static void *races(void *argument) {
    uint64_t state = (uintptr_t)argument, wrong = 0;
    while (!given_back) {
        unsigned char *place = racy + next(&state) % 512 * PAGE;
        unsigned char now = *place;
        wrong += now != 0 && now != 1;
        *place = 1;
    }
    return (void *)wrong;
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 4096);
    pages = (count > 1 ? strtoull(words[1], NULL, 10) : 1) << 8;
    memory = map(pages * PAGE);
    for (size_t page = 0; page < pages; page++)
        memory[page * PAGE + 7] = expected(page);

    act(SIGSEGV, catches, SA_SIGINFO);
    for (int i = 0; i < 3; i++)
        if (!sigsetjmp(back, 1))
            *(volatile int *)16 = 1;
    printf("caught: %d\n", (int)caught);
    printf("wrong: %zu\n", look(&seed, 2000));

    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    printf("blocked, wrong: %zu\n", look(&seed, 2000));
    sigprocmask(SIG_SETMASK, &before, NULL);

    act(SIGSEGV, opens, SA_SIGINFO);
    barrier = map(64 * PAGE);
    memset(barrier, 1, 64 * PAGE);
    for (int round = 0; round < 3; round++) {
        mprotect(barrier, 64 * PAGE, PROT_READ);
        look(&seed, 3000);
        for (int page = 0; page < 64; page++)
            barrier[page * PAGE] = (unsigned char)(barrier[page * PAGE + 1] + round);
    }
    printf("barriers: %d\n", (int)barriers);

    act(SIGALRM, tick, SA_RESTART);
    struct itimerval time = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &time, NULL);
    size_t wrong = 0;
    for (int i = 0; ticks < 100 || i < 200; i++) {
        wrong += look(&seed, 20);
        void *blocks[4];
        for (int block = 0; block < 4; block++)
            memset(blocks[block] = malloc(200000), block, 200000);
        for (int block = 0; block < 4; block++)
            free(blocks[block]);
    }
    memset(&time, 0, sizeof time);
    setitimer(ITIMER_REAL, &time, NULL);
    printf("ticks: %d, wrong: %zu, %d\n", ticks >= 100, wrong, (int)wrong_ticks);

    stack_t stack = {.ss_sp = map(STACK), .ss_size = STACK}, told;
    sigaltstack(&stack, NULL);
    act(SIGUSR1, on_stack, SA_ONSTACK);
    for (int i = 0; i < 3; i++) {
        look(&seed, 3000);
        raise(SIGUSR1);
    }
    sigaltstack(NULL, &told);
    printf("on its stack: %d, told: %d\n", (int)on_own_stack, told.ss_sp == stack.ss_sp && told.ss_size == STACK);

    pthread_t threads[MANY];
    pthread_attr_t attributes;
    for (int i = 0; i < 8; i++) {
        pthread_attr_init(&attributes);
        pthread_attr_setstack(&attributes, map(STACK), STACK);
        if (pthread_create(&threads[i], &attributes, in_stack, (void *)(uintptr_t)(i + 1)))
            return 5;
    }
    wrong = look(&seed, 3000);
    for (int i = 0; i < 8; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong += (uintptr_t)result;
    }
    printf("stacks, wrong: %zu\n", wrong);

    getcontext(&other_context);
    other_context.uc_stack = (stack_t){.ss_sp = map(STACK), .ss_size = STACK};
    other_context.uc_link = &main_context;
    makecontext(&other_context, other_body, 0);
    for (int i = 0; i < 20; i++) {
        swapcontext(&main_context, &other_context);
        context_wrong += look(&seed, 300);
    }
    printf("contexts, wrong: %zu\n", context_wrong);

    mutexes = map(16 * PAGE * sizeof *mutexes / 8);
    counters = map(16 * PAGE);
    for (size_t i = 0; i < 16 * PAGE / 64; i++)
        pthread_mutex_init(&mutexes[i], NULL);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 * 1024);
    for (int i = 0; i < MANY; i++)
        if (pthread_create(&threads[i], &attributes, one_of_many, (void *)(uintptr_t)(i + 100)))
            return 6;
    wrong = 0;
    for (int i = 0; i < MANY; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong += (uintptr_t)result;
    }
    uint64_t sum = 0;
    for (int i = 0; i < 16; i++)
        sum += counters[i * (PAGE / sizeof(uint64_t))];
    printf("threads: %llu, wrong: %zu\n", (unsigned long long)sum, wrong);

    turns = map(CONDITIONS * sizeof *turns);
    for (int i = 0; i < CONDITIONS; i++) {
        pthread_mutex_init(&turns[i].mutex, NULL);
        pthread_cond_init(&turns[i].condition, NULL);
    }
    look(&seed, 3000);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, takes_turns, (void *)(uintptr_t)i))
            return 7;
    wrong = 0;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong += (uintptr_t)result;
    }
    unsigned all_turns = 0, order = 0;
    for (int i = 0; i < CONDITIONS; i++) {
        all_turns += turns[i].turn;
        order = order * 31 + turns[i].order;
    }
    printf("turns: %u, in the order %u, wrong: %zu\n", all_turns, order, wrong);

    racy = map(512 * PAGE);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, races, (void *)(uintptr_t)(i + 1));
    for (int i = 0; i < 200; i++) {
        madvise(racy + i % 8 * 64 * PAGE, 64 * PAGE, MADV_DONTNEED);
        look(&seed, 10);
    }
    given_back = 1;
    wrong = 0;
    for (int i = 0; i < 3; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong += (uintptr_t)result;
    }
    printf("given back, wrong: %zu\n", wrong);
    return 0;
}
