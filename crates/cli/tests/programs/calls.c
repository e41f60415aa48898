/* Passes addresses to the kernel whose pages have left DRAM: each call has pages of its own, all are prepared, and then
 * so much other memory is written that they have to leave. Prints what each call found, which must be the same without
 * fulgurite. Arguments: a directory for files, and MiB of other memory. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 4096, LONG = 600 * 1024, MESSAGE = 140 * 1024 };

static char *pages, *other;
static size_t used, other_bytes;
extern char **environ;

/* What programs call that are built with _FORTIFY_SOURCE. */
ssize_t __read_chk(int, void *, size_t, size_t);
ssize_t __pread64_chk(int, void *, size_t, off_t, size_t);
ssize_t __recv_chk(int, void *, size_t, size_t, int);
size_t __fread_chk(void *, size_t, size_t, size_t, FILE *);
int __poll_chk(struct pollfd *, nfds_t, int, size_t);
ssize_t __readlink_chk(const char *, char *, size_t, size_t);
char *__getcwd_chk(char *, size_t, size_t);

/* What programs call that were built before glibc 2.33. */
__asm__(".symver old_stat, __xstat@GLIBC_2.2.5");
__asm__(".symver old_lstat, __lxstat64@GLIBC_2.2.5");
__asm__(".symver old_fstat, __fxstat@GLIBC_2.2.5");
__asm__(".symver old_fstatat, __fxstatat64@GLIBC_2.4");
int old_stat(int, const char *, struct stat *);
int old_lstat(int, const char *, struct stat64 *);
int old_fstat(int, int, struct stat *);
int old_fstatat(int, int, const char *, struct stat64 *, int);

/* A place of its own. */
static void *take(size_t bytes) {
    void *place = pages + used;
    used += (bytes + PAGE - 1) / PAGE * PAGE;
    if (used > (size_t)PAGES * PAGE)
        abort();
    return place;
}
static char *text(const char *string) {
    /* Across the border of two pages. */
    char *place = (char *)take(2 * PAGE) + PAGE - 3;
    return strcpy(place, string);
}
static char *path(const char *directory, const char *name) {
    char whole[512];
    snprintf(whole, sizeof whole, "%s/%s", directory, name);
    return text(whole);
}
static unsigned char evicted;
static void evict(void) {
    evicted += 2;
    for (int round = 0; round < 2; round++)
        for (size_t at = 0; at < other_bytes; at += PAGE)
            other[at] += 1;
}
static void say(const char *name, long result) {
    printf("%s: %ld%s%s\n", name, result, result < 0 ? " " : "", result < 0 ? strerror(errno) : "");
}
static unsigned sum(const void *bytes, size_t count) {
    unsigned found = 0;
    for (size_t i = 0; i < count; i++)
        found = found * 31 + ((const unsigned char *)bytes)[i];
    return found;
}
static char *pattern(size_t bytes) {
    char *place = take(bytes);
    for (size_t i = 0; i < bytes; i++)
        place[i] = (char)(i * 7 + i / 4096);
    return place;
}

static struct locks {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    char gap[PAGE];
    sem_t semaphore;
    char gap2[PAGE];
    pthread_barrier_t barrier;
    char gap3[PAGE];
    int word, go;
} *locks;

static void *other_thread(void *unused) {
    (void)unused;
    pthread_mutex_lock(&locks->mutex);
    while (!locks->go)
        pthread_cond_wait(&locks->condition, &locks->mutex);
    pthread_mutex_unlock(&locks->mutex);
    sem_wait(&locks->semaphore);
    syscall(SYS_futex, &locks->word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    pthread_barrier_wait(&locks->barrier);
    return NULL;
}

static void *writer(void *argument) {
    /* A stream that comes in pieces, the last of which the reader has to wait for. */
    int fd = (int)(intptr_t)argument;
    static char bytes[LONG];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 13);
    for (size_t at = 0; at < sizeof bytes; at += sizeof bytes / 4)
        if (write(fd, bytes + at, sizeof bytes / 4) < 0)
            return NULL;
    close(fd);
    return NULL;
}

static char *sent;
static void *sender(void *argument) {
    /* What a reader that wants all waits for. */
    int fd = (int)(intptr_t)argument;
    for (size_t at = 0; at < MESSAGE; at += MESSAGE / 4) {
        usleep(5000);
        if (send(fd, sent + at, MESSAGE / 4, 0) < 0)
            return NULL;
    }
    return NULL;
}

/* Locks that another thread has, with a time limit and without, while pages leave. Each has pages of its own. */
enum { LIMITED = 10 };
static struct limited {
    pthread_mutex_t *mutex;
    pthread_rwlock_t *rwlock, *waited;
    sem_t *semaphore;
    pthread_mutex_t *free;
    pthread_cond_t *condition, *condition2;
    struct timespec *times[LIMITED];
} limited;
static volatile int step, evicts;

static struct timespec *soon(int which, clockid_t clock) {
    struct timespec *time = limited.times[which];
    clock_gettime(clock, time);
    if ((time->tv_nsec += 3000000) >= 1000000000)
        time->tv_sec++, time->tv_nsec -= 1000000000;
    return time;
}
static void *other_evicts(void *unused) {
    volatile char found = 0;
    while (evicts)
        for (size_t at = 0; at < other_bytes; at += PAGE)
            found += ((volatile char *)other)[at];
    return unused;
}
static int failed(int result) { return result < 0 ? errno : 0; }
static void *limited_thread(void *unused) {
    int ended = 0;
    for (int round = 0; round < 5; round++) {
        ended += pthread_mutex_timedlock(limited.mutex, soon(0, CLOCK_REALTIME)) == ETIMEDOUT;
        ended += pthread_mutex_clocklock(limited.mutex, CLOCK_MONOTONIC, soon(1, CLOCK_MONOTONIC)) == ETIMEDOUT;
        ended += pthread_rwlock_timedrdlock(limited.rwlock, soon(2, CLOCK_REALTIME)) == ETIMEDOUT;
        ended += pthread_rwlock_timedwrlock(limited.rwlock, soon(3, CLOCK_REALTIME)) == ETIMEDOUT;
        ended += pthread_rwlock_clockrdlock(limited.rwlock, CLOCK_MONOTONIC, soon(4, CLOCK_MONOTONIC)) == ETIMEDOUT;
        ended += pthread_rwlock_clockwrlock(limited.rwlock, CLOCK_MONOTONIC, soon(5, CLOCK_MONOTONIC)) == ETIMEDOUT;
        ended += failed(sem_timedwait(limited.semaphore, soon(6, CLOCK_REALTIME))) == ETIMEDOUT;
        ended += failed(sem_clockwait(limited.semaphore, CLOCK_MONOTONIC, soon(7, CLOCK_MONOTONIC))) == ETIMEDOUT;
        pthread_mutex_lock(limited.free);
        ended += pthread_cond_timedwait(limited.condition, limited.free, soon(8, CLOCK_REALTIME)) == ETIMEDOUT;
        ended += pthread_cond_clockwait(limited.condition2, limited.free, CLOCK_MONOTONIC, soon(9, CLOCK_MONOTONIC)) == ETIMEDOUT;
        pthread_mutex_unlock(limited.free);
    }
    step = 1;
    int got = pthread_rwlock_rdlock(limited.waited);
    pthread_rwlock_unlock(limited.waited);
    step = 2;
    got |= pthread_rwlock_wrlock(limited.rwlock);
    pthread_rwlock_unlock(limited.rwlock);
    say("time limits", ended);
    say("read-write locks", got);
    return unused;
}
static int locks_with_limits(void) {
    pthread_t thread, evictor;
    limited.mutex = take(sizeof *limited.mutex), limited.rwlock = take(sizeof *limited.rwlock);
    limited.waited = take(sizeof *limited.waited), limited.semaphore = take(sizeof *limited.semaphore);
    limited.free = take(sizeof *limited.free), limited.condition = take(sizeof *limited.condition);
    limited.condition2 = take(sizeof *limited.condition2);
    for (int i = 0; i < LIMITED; i++)
        limited.times[i] = take(sizeof(struct timespec));
    pthread_mutex_init(limited.mutex, NULL), pthread_mutex_init(limited.free, NULL);
    pthread_rwlock_init(limited.rwlock, NULL), pthread_rwlock_init(limited.waited, NULL);
    pthread_cond_init(limited.condition, NULL), pthread_cond_init(limited.condition2, NULL);
    sem_init(limited.semaphore, 0, 0);
    pthread_mutex_lock(limited.mutex), pthread_rwlock_wrlock(limited.rwlock), pthread_rwlock_wrlock(limited.waited);
    evicts = 1;
    if (pthread_create(&evictor, NULL, other_evicts, NULL) || pthread_create(&thread, NULL, limited_thread, NULL))
        return -1;
    while (step == 0)
        usleep(1000);
    usleep(5000), pthread_rwlock_unlock(limited.waited);
    while (step == 1)
        usleep(1000);
    usleep(5000), pthread_rwlock_unlock(limited.rwlock);
    int result = pthread_join(thread, NULL);
    evicts = 0;
    return result | pthread_join(evictor, NULL);
}

int main(int count, char **words) {
    if (count < 3)
        return 2;
    const char *directory = words[1];
    other_bytes = strtoull(words[2], NULL, 10) << 20;
    pages = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    other = mmap(NULL, other_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || other == MAP_FAILED)
        return 3;

    /* All that is passed. */
    char *name = path(directory, "file"), *renamed = path(directory, "renamed"), *linked = path(directory, "link");
    char *sub = path(directory, "sub"), *here = path(directory, ".");
    char *out = pattern(LONG), *in = take(LONG), *at_in = take(LONG), *small = take(100);
    struct iovec *list = take(3 * sizeof *list), *list_in = take(3 * sizeof *list_in);
    char *parts[3], *parts_in[3];
    for (int i = 0; i < 3; i++) {
        parts[i] = pattern(5000 + i);
        parts_in[i] = take(5000 + i);
        list[i] = (struct iovec){parts[i], 5000 + i};
        list_in[i] = (struct iovec){parts_in[i], 5000 + i};
    }
    struct stat *status = take(sizeof *status), *status2 = take(sizeof *status2), *status3 = take(sizeof *status3);
    struct statx *extended = take(sizeof *extended);
    char *to = take(PAGE), *cwd = take(PAGE), *entries = take(32 * 1024), *stream = take(LONG), *read_back = take(LONG);
    int *fds = take(2 * sizeof *fds), *pair = take(2 * sizeof *pair), *ends = take(2 * sizeof *ends);
    int *available = take(sizeof *available), *child = take(sizeof *child), *option = take(sizeof *option);
    socklen_t *length = take(sizeof *length), *address_length = take(sizeof *address_length);
    struct pollfd *polled = take(sizeof *polled), *ppolled = take(sizeof *ppolled);
    struct epoll_event *event = take(sizeof *event), *events = take(4 * sizeof *events);
    fd_set *set = take(sizeof *set);
    struct timespec *time = take(sizeof *time), *left = take(sizeof *left);
    struct timeval *moment = take(sizeof *moment);
    struct utsname *system_name = take(sizeof *system_name);
    struct rusage *usage = take(sizeof *usage);
    struct rlimit *limit = take(sizeof *limit);
    struct sockaddr_in *address = take(sizeof *address), *peer = take(sizeof *peer), *bound = take(sizeof *bound);
    struct msghdr *message = take(sizeof *message), *message_in = take(sizeof *message_in);
    struct iovec *vector = take(sizeof *vector), *vector_in = take(sizeof *vector_in);
    char *control = take(256), *control_in = take(256), *datagram = pattern(3000), *datagram_in = take(3000);
    char *random = take(5000), *shell = text("exit 7"), *echo = text("echo from a shell");
    char **arguments = take(4 * sizeof *arguments);
    arguments[0] = text("sh"), arguments[1] = text("-c"), arguments[2] = text("exit 9"), arguments[3] = NULL;
    char *program = text("/bin/sh");
    char *words_of[8] = {text("sh"), text("-c"), text("exit $#"), text("sh"), text("a"), text("b"), text("c"), text("d")};
    char **environment = take(2 * sizeof *environment), *by_name = text("sh"), *ends_by = text("exit $STATUS");
    environment[0] = text("STATUS=6"), environment[1] = NULL;
    char **more = take(4 * sizeof *more);
    more[0] = text("sh"), more[1] = text("-c"), more[2] = text("exit $STATUS"), more[3] = NULL;
    off_t *offset = take(sizeof *offset);
    sigset_t *mask = take(sizeof *mask), *mask_before = take(sizeof *mask_before);
    struct sigaction *action = take(sizeof *action), *action_before = take(sizeof *action_before);
    struct flock *lock = take(sizeof *lock);
    char *checked = take(LONG), *checked_to = take(PAGE), *thread_name = text("by-name"), *told_name = take(PAGE);
    struct pollfd *checked_poll = take(sizeof *checked_poll);
    struct mmsghdr *several = take(2 * sizeof *several), *several_in = take(2 * sizeof *several_in);
    siginfo_t *ended = take(sizeof *ended), *came = take(sizeof *came);
    sigset_t *waited = take(sizeof *waited);
    char *hard = path(directory, "hard");
    struct statfs *system1 = take(sizeof *system1), *system2 = take(sizeof *system2);
    struct statfs64 *system3 = take(sizeof *system3), *system4 = take(sizeof *system4);
    struct statvfs *system5 = take(sizeof *system5);
    struct stat *old1 = take(sizeof *old1), *old3 = take(sizeof *old3);
    struct stat64 *old2 = take(sizeof *old2), *old4 = take(sizeof *old4);
    char *again = path(directory, "again"), *made = path(directory, "made-XXXXXX"), *also = path(directory, "also-XXXXXX.c");
    char *made_directory = path(directory, "made-XXXXXX"), *value = text("a value of it");
    char *value_to = take(100), *values_to = take(100), *values_to2 = take(100), *listed = take(200), *listed2 = take(200);
    char *renamed_copies[24], *attributes[12], **renamed_too = renamed_copies, **attribute = attributes;
    for (int i = 0; i < 24; i++)
        renamed_copies[i] = path(directory, "renamed");
    for (int i = 0; i < 12; i++)
        attributes[i] = text("user.mark");
    struct itimerspec *alarm_at = take(sizeof *alarm_at), *alarm_before = take(sizeof *alarm_before);
    struct rlimit64 *limit64 = take(sizeof *limit64), *limit_of = take(sizeof *limit_of);
    struct timespec *moment_of_clock = take(sizeof *moment_of_clock);
    struct timeval *time_of_day = take(sizeof *time_of_day);
    locks = take(sizeof *locks);
    pthread_mutex_init(&locks->mutex, NULL);
    pthread_cond_init(&locks->condition, NULL);
    sem_init(&locks->semaphore, 0, 0);
    pthread_barrier_init(&locks->barrier, NULL, 2);
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    *address_length = *length = sizeof *address;
    time->tv_nsec = 1000;
    sigemptyset(mask);
    sigaddset(mask, SIGUSR1);
    sigaddset(mask, SIGSEGV);
    action->sa_handler = SIG_IGN;
    evict();

    /* Files. */
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    say("open", fd >= 0);
    say("write", write(fd, out, LONG));
    say("pwrite", pwrite(fd, out + 1, 70001, LONG));
    say("writev", writev(fd, list, 3));
    say("lseek", lseek(fd, 0, SEEK_SET));
    say("read", read(fd, in, LONG));
    say("same", memcmp(in, out, LONG));
    say("pread", pread(fd, at_in, 70001, 5));
    say("same", memcmp(at_in, out + 5, 70001));
    say("lseek", lseek(fd, LONG, SEEK_SET));
    say("readv", readv(fd, list_in, 3));
    say("sum", sum(parts_in[0], 5000) + sum(parts_in[1], 5001) + sum(parts_in[2], 5002));
    say("fstat", fstat(fd, status));
    say("size", status->st_size);
    say("stat", stat(name, status2) + (status2->st_size != status->st_size));
    say("lstat", lstat(name, status3) + (status3->st_ino != status->st_ino));
    say("statx", statx(AT_FDCWD, name, 0, STATX_SIZE, extended) + (extended->stx_size != (unsigned long)status->st_size));
    *lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
    say("fcntl", fcntl(fd, F_SETLK, lock));
    say("access", access(name, R_OK));
    say("symlink", symlink(name, linked));
    say("readlink", readlink(linked, to, PAGE) == (long)strlen(name));
    say("rename", rename(name, renamed));
    say("linkat", linkat(AT_FDCWD, renamed, AT_FDCWD, hard, 0) + unlink(hard));
    say("checked pread", __pread64_chk(fd, checked, LONG, 0, LONG));
    say("same", memcmp(checked, out, LONG));
    say("preadv2", preadv2(fd, list_in, 3, 7, 0));
    say("same", memcmp(parts_in[0], out + 7, 5000) || memcmp(parts_in[2], out + 7 + 10001, 5002));
    say("checked readlink", __readlink_chk(linked, checked_to, PAGE, PAGE) == (long)strlen(name));
    /* Each has a path of its own. */
    say("statfs", statfs(*renamed_too++, system1) + (system1->f_bsize <= 0));
    say("fstatfs", fstatfs(fd, system2) + (system2->f_type != system1->f_type));
    say("statfs64", statfs64(*renamed_too++, system3) + (system3->f_type != system1->f_type));
    say("fstatfs64", fstatfs64(fd, system4) + (system4->f_type != system1->f_type));
    say("statvfs", statvfs(*renamed_too++, system5) + (system5->f_namemax != (unsigned long)system1->f_namelen));
    say("old stat", old_stat(1, *renamed_too++, old1) + (old1->st_ino != status->st_ino));
    say("old fstat", old_fstat(1, fd, old3) + (old3->st_ino != status->st_ino));
    say("old lstat", old_lstat(1, *renamed_too++, old2) + (old2->st_ino != status->st_ino));
    say("old fstatat", old_fstatat(1, AT_FDCWD, *renamed_too++, old4, 0) + (old4->st_ino != status->st_ino));
    say("setxattr", setxattr(*renamed_too++, *attribute++, value, 13, 0));
    say("getxattr", getxattr(*renamed_too++, *attribute++, value_to, 100));
    say("fgetxattr", fgetxattr(fd, *attribute++, values_to, 100));
    say("lgetxattr", lgetxattr(*renamed_too++, *attribute++, values_to2, 100));
    say("same", memcmp(value_to, values_to, 13) || memcmp(value_to, values_to2, 13));
    say("listxattr", llistxattr(*renamed_too++, listed, 200) == flistxattr(fd, listed2, 200));
    say("fsetxattr", fsetxattr(fd, *attribute++, value, 5, 0));
    say("lsetxattr", lsetxattr(*renamed_too++, *attribute++, value, 7, 0));
    say("listxattr", listxattr(*renamed_too++, listed, 200) >= 0 || errno == ENOTSUP);
    say("removexattr", removexattr(*renamed_too++, *attribute++));
    say("lremovexattr", lremovexattr(*renamed_too++, *attribute++));
    say("fremovexattr", fremovexattr(fd, *attribute++));
    int watched = inotify_init1(IN_CLOEXEC);
    say("inotify_add_watch", inotify_add_watch(watched, *renamed_too++, IN_ATTRIB) == 1);
    say("lchown", lchown(*renamed_too++, (uid_t)-1, (gid_t)-1));
    say("truncate", truncate(*renamed_too++, LONG + 99));
    say("truncate64", truncate64(*renamed_too++, LONG + 98) + (lseek(fd, 0, SEEK_END) != LONG + 98));
    say("renameat2", renameat2(AT_FDCWD, *renamed_too++, AT_FDCWD, again, RENAME_NOREPLACE));
    say("rename", rename(again, *renamed_too++));
    int made_fd = mkstemp(made), also_fd = mkostemps(also, 2, O_CLOEXEC);
    say("mkstemp", (made_fd < 0) + (also_fd < 0));
    say("unlink", unlink(made) + unlink(also));
    say("mkdtemp", (mkdtemp(made_directory) != made_directory) + rmdir(made_directory));
    say("unlink", unlink(renamed) + unlink(linked));
    say("mkdir", mkdir(sub, 0700));
    int directory_fd = open(here, O_RDONLY | O_DIRECTORY);
    say("getdents64", getdents64(directory_fd, entries, 32 * 1024) > 0);
    say("rmdir", rmdir(sub));
    say("getcwd", getcwd(cwd, PAGE) == cwd && cwd[0] == '/');
    say("checked getcwd", __getcwd_chk(checked_to, PAGE, PAGE) == checked_to && !strcmp(checked_to, cwd));
    FILE *file = tmpfile();
    say("fwrite", fwrite(out, 1, LONG, file));
    rewind(file);
    say("fread", fread(stream, 3, LONG / 3, file));
    say("same", memcmp(stream, out, LONG));
    rewind(file);
    say("checked fread", __fread_chk(checked, LONG, 1, LONG, file));
    say("same", memcmp(checked, out, LONG));
    fclose(file);

    /* Pipes and sockets. */
    say("pipe", pipe(fds));
    say("write", write(fds[1], small, 100));
    say("ioctl", ioctl(fds[0], FIONREAD, available) + *available);
    *polled = *ppolled = (struct pollfd){fds[0], POLLIN, 0};
    say("poll", poll(polled, 1, 0));
    say("ppoll", ppoll(ppolled, 1, time, mask));
    *checked_poll = (struct pollfd){fds[0], POLLIN, 0};
    say("checked poll", __poll_chk(checked_poll, 1, 0, sizeof *checked_poll));
    say("checked read", __read_chk(fds[0], checked, 60, LONG));
    FD_ZERO(set);
    FD_SET(fds[0], set);
    say("select", select(fds[0] + 1, set, NULL, NULL, moment));
    int epoll = epoll_create1(0);
    event->events = EPOLLIN;
    event->data.u32 = 77;
    say("epoll_ctl", epoll_ctl(epoll, EPOLL_CTL_ADD, fds[0], event));
    say("epoll_wait", epoll_wait(epoll, events, 4, 0));
    say("epoll_data", events[0].data.u32);
    pthread_t thread;
    int stream_fds[2];
    if (pipe(stream_fds) || pthread_create(&thread, NULL, writer, (void *)(intptr_t)stream_fds[1]))
        return 4;
    size_t got = 0;
    for (long now; (now = read(stream_fds[0], read_back + got, LONG - got)) > 0; got += (size_t)now) {
    }
    pthread_join(thread, NULL);
    say("stream", (long)got);
    say("sum", sum(read_back, LONG));
    /* A part of what is asked for is there: all of it is read, and nothing waits for more. */
    int parts_fds[2];
    if (pipe(parts_fds) || fcntl(parts_fds[1], F_SETPIPE_SZ, 1 << 20) < 0)
        return 4;
    say("a part", write(parts_fds[1], out, MESSAGE));
    memset(in, 0, LONG);
    say("of all", read(parts_fds[0], in, LONG));
    say("same", memcmp(in, out, MESSAGE) || in[MESSAGE] != 0);
    close(parts_fds[1]);
    say("the end", read(parts_fds[0], in, LONG));
    say("socketpair", socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    *vector = (struct iovec){datagram, 3000};
    *vector_in = (struct iovec){datagram_in, 3000};
    *message = (struct msghdr){.msg_iov = vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(4)};
    struct cmsghdr *passed = CMSG_FIRSTHDR(message);
    *passed = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(4)};
    memcpy(CMSG_DATA(passed), &fd, 4);
    *message_in = (struct msghdr){.msg_iov = vector_in, .msg_iovlen = 1, .msg_control = control_in, .msg_controllen = 256};
    say("sendmsg", sendmsg(pair[0], message, 0));
    say("recvmsg", recvmsg(pair[1], message_in, 0));
    say("same", memcmp(datagram, datagram_in, 3000));
    say("passed", CMSG_FIRSTHDR(message_in) && CMSG_FIRSTHDR(message_in)->cmsg_type == SCM_RIGHTS);
    int streams[2], messages[2], room = 212992;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, streams) || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, messages))
        return 4;
    setsockopt(streams[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    setsockopt(messages[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    say("send", send(streams[0], out, MESSAGE, 0));
    memset(in, 0, LONG);
    say("peek", recv(streams[1], in, LONG, MSG_PEEK));
    say("same", memcmp(in, out, MESSAGE) || in[MESSAGE] != 0);
    sent = out;
    if (pthread_create(&thread, NULL, sender, (void *)(intptr_t)streams[0]))
        return 4;
    say("all", recv(streams[1], in, 2 * MESSAGE, MSG_WAITALL));
    say("same", memcmp(in, out, MESSAGE) || memcmp(in + MESSAGE, out, MESSAGE));
    pthread_join(thread, NULL);
    say("message", send(messages[0], out, MESSAGE, 0));
    say("message", write(messages[0], out + 1, 100));
    memset(in, 0, LONG);
    say("message", recv(messages[1], in, LONG, 0));
    say("same", memcmp(in, out, MESSAGE) || in[MESSAGE] != 0);
    say("message", read(messages[1], at_in, LONG));
    say("same", memcmp(at_in, out + 1, 100));
    *vector = (struct iovec){out, MESSAGE};
    *vector_in = (struct iovec){in, LONG};
    *message = (struct msghdr){.msg_iov = vector, .msg_iovlen = 1};
    *message_in = (struct msghdr){.msg_iov = vector_in, .msg_iovlen = 1};
    memset(in, 0, LONG);
    say("sendmsg", sendmsg(messages[0], message, 0));
    say("recvmsg", recvmsg(messages[1], message_in, 0));
    say("same", memcmp(in, out, MESSAGE) || in[MESSAGE] != 0);
    for (int i = 0; i < 2; i++) {
        several[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &list[i], .msg_iovlen = 1}};
        several_in[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &list_in[i], .msg_iovlen = 1}};
        memset(parts_in[i], 0, 5000);
    }
    say("sendmmsg", sendmmsg(messages[0], several, 2, 0));
    say("recvmmsg", recvmmsg(messages[1], several_in, 2, MSG_WAITFORONE, NULL));
    say("lengths", several_in[0].msg_len * 10000 + several_in[1].msg_len);
    say("same", memcmp(parts_in[0], parts[0], 5000) || memcmp(parts_in[1], parts[1], 5001));
    say("send", send(messages[0], out, 100, 0));
    say("checked recv", __recv_chk(messages[1], checked, LONG, LONG, 0));
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    say("bind", bind(udp, (struct sockaddr *)address, sizeof *address));
    say("getsockname", getsockname(udp, (struct sockaddr *)bound, address_length));
    say("sendto", sendto(udp, datagram, 2000, 0, (struct sockaddr *)bound, sizeof *bound));
    say("recvfrom", recvfrom(udp, datagram_in, 3000, 0, (struct sockaddr *)peer, length));
    say("peer", peer->sin_port == bound->sin_port);
    *length = sizeof *option;
    say("getsockopt", getsockopt(udp, SOL_SOCKET, SO_TYPE, option, length) + *option);
    say("setsockopt", setsockopt(udp, SOL_SOCKET, SO_REUSEADDR, option, sizeof *option));

    /* The system, and time. */
    say("uname", uname(system_name) + (system_name->sysname[0] != 'L'));
    say("getrusage", getrusage(RUSAGE_SELF, usage));
    say("getrlimit", getrlimit(RLIMIT_NOFILE, limit) + (limit->rlim_cur == 0));
    say("getrandom", getrandom(random, 5000, 0));
    say("nanosleep", nanosleep(time, left));
    /* By the vDSO, which writes to what it is given as the program does. */
    say("clock_gettime", clock_gettime(CLOCK_MONOTONIC, moment_of_clock) + (moment_of_clock->tv_sec == 0));
    say("gettimeofday", gettimeofday(time_of_day, NULL) + (time_of_day->tv_sec == 0));
    int alarms = timerfd_create(CLOCK_MONOTONIC, 0);
    alarm_at->it_value.tv_sec = 1000;
    say("timerfd_settime", timerfd_settime(alarms, 0, alarm_at, alarm_before) + (alarm_before->it_value.tv_sec != 0));
    say("getrlimit64", getrlimit64(RLIMIT_NOFILE, limit64) + (limit64->rlim_cur == 0));
    say("prlimit64", prlimit64(0, RLIMIT_NOFILE, limit64, limit_of) + (limit_of->rlim_max == 0));
    say("setrlimit64", setrlimit64(RLIMIT_NOFILE, limit64));
    say("sigprocmask", sigprocmask(SIG_SETMASK, mask, mask_before));
    say("usr1", !sigismember(mask_before, SIGUSR1));
    say("sigaction", sigaction(SIGUSR2, action, action_before) + (action_before->sa_handler != SIG_DFL));
    say("prctl", prctl(PR_SET_NAME, thread_name) + prctl(PR_GET_NAME, told_name));
    say("name", strcmp(told_name, "by-name"));
    sigemptyset(waited);
    sigaddset(waited, SIGUSR1);
    kill(getpid(), SIGUSR1);
    say("sigtimedwait", sigtimedwait(waited, came, time) == SIGUSR1 && came->si_pid == getpid());
    *offset = 0;
    int null = open("/dev/null", O_WRONLY);
    say("copy", syscall(SYS_sendfile, null, fd, NULL, 100));

    /* Children. */
    evict();
    say("system", WEXITSTATUS(system(shell)));
    FILE *answer = popen(echo, "r");
    char line[100] = "";
    say("popen", answer && fgets(line, sizeof line, answer) != NULL);
    say("line", sum(line, strlen(line)));
    pclose(answer);
    pid_t pid;
    say("posix_spawn", posix_spawn(&pid, program, NULL, NULL, arguments, environ));
    say("waitpid", waitpid(pid, child, 0) == pid ? WEXITSTATUS(*child) : -1);
    if ((pid = vfork()) == 0)
        _exit(5);
    say("waitid", waitid(P_PID, (id_t)pid, ended, WEXITED) + ended->si_status);
    if ((pid = vfork()) == 0) {
        execv(program, arguments);
        _exit(99);
    }
    say("execv", waitpid(pid, child, 0) == pid ? WEXITSTATUS(*child) : -1);

    /* More words than registers. */
    if ((pid = vfork()) == 0) {
        execl(program, words_of[0], words_of[1], words_of[2], words_of[3], words_of[4], words_of[5], words_of[6], words_of[7], NULL);
        _exit(99);
    }
    say("execl", waitpid(pid, child, 0) == pid ? WEXITSTATUS(*child) : -1);
    evict();
    if ((pid = vfork()) == 0) {
        execlp(by_name, words_of[0], words_of[1], words_of[2], words_of[3], words_of[4], NULL);
        _exit(99);
    }
    say("execlp", waitpid(pid, child, 0) == pid ? WEXITSTATUS(*child) : -1);
    if ((pid = vfork()) == 0) {
        execle(program, words_of[0], words_of[1], ends_by, NULL, environment);
        _exit(99);
    }
    say("execle", waitpid(pid, child, 0) == pid ? WEXITSTATUS(*child) : -1);
    evict();
    int shell_fd = open("/bin/sh", O_RDONLY | O_CLOEXEC);
    if ((pid = vfork()) == 0) {
        fexecve(shell_fd, more, environment);
        _exit(99);
    }
    say("fexecve", waitpid(pid, child, 0) == pid ? WEXITSTATUS(*child) : -1);

    /* Locks: the other thread waits at each, and their pages leave in between. */
    if (pthread_create(&thread, NULL, other_thread, NULL))
        return 4;
    for (int step = 0; step < 4; step++) {
        usleep(2000);
        evict();
        switch (step) {
        case 0:
            pthread_mutex_lock(&locks->mutex);
            locks->go = 1;
            pthread_cond_signal(&locks->condition);
            pthread_mutex_unlock(&locks->mutex);
            break;
        case 1:
            sem_post(&locks->semaphore);
            break;
        case 2:
            __atomic_store_n(&locks->word, 1, __ATOMIC_SEQ_CST);
            syscall(SYS_futex, &locks->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
            break;
        default:
            pthread_barrier_wait(&locks->barrier);
        }
    }
    say("locks", pthread_join(thread, NULL));
    say("locks", locks_with_limits());
    size_t wrong = 0;
    for (size_t at = 0; at < other_bytes; at += PAGE)
        wrong += (unsigned char)other[at] != evicted;
    say("wrong", (long)wrong);
    return 0;
}
