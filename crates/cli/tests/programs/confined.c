/* Runs a program with fewer rights. Arguments: what is taken away, "--", the program and its arguments.
 *   user    the rights of root: user and group 65534
 *   docker  the system calls userfaultfd and io_uring_*, as Docker's default profile does
 *   guards  guard pages: madvise(MADV_GUARD_INSTALL) is refused, as before Linux 6.15 for memory of files
 *   moves   what userfaultfd has since Linux 6.8: it knows no such features
 *   drops   process_madvise, which an older kernel than Linux 5.10 has not, and older ones than 6.16 not for this
 *   rings   io_uring, as before Linux 5.1
 */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { OTHERS = 65534, GUARD_INSTALL = 102 };
/* UFFDIO_API */
#define USERFAULTFD_API 0xc018aa3fU

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IS(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)

static int filter(struct sock_filter *code, unsigned short count) {
    struct sock_fprog program = {count, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int take(const char *what) {
    if (!strcmp(what, "user"))
        return setgroups(0, NULL) || setresgid(OTHERS, OTHERS, OTHERS) || setresuid(OTHERS, OTHERS, OTHERS);
    if (!strcmp(what, "docker")) {
        struct sock_filter code[] = {
            LOAD(nr),
            IS(SYS_userfaultfd, 4, 0),
            IS(SYS_io_uring_setup, 3, 0),
            IS(SYS_io_uring_enter, 2, 0),
            IS(SYS_io_uring_register, 1, 0),
            RETURN(SECCOMP_RET_ALLOW),
            RETURN(SECCOMP_RET_ERRNO | EPERM),
        };
        return filter(code, sizeof code / sizeof *code);
    }
    if (!strcmp(what, "guards")) {
        struct sock_filter code[] = {
            LOAD(nr),
            IS(SYS_madvise, 0, 2),
            LOAD(args[2]),
            IS(GUARD_INSTALL, 1, 0),
            RETURN(SECCOMP_RET_ALLOW),
            RETURN(SECCOMP_RET_ERRNO | EINVAL),
        };
        return filter(code, sizeof code / sizeof *code);
    }
    if (!strcmp(what, "moves")) {
        struct sock_filter code[] = {
            LOAD(nr),
            IS(SYS_ioctl, 0, 2),
            LOAD(args[1]),
            IS(USERFAULTFD_API, 1, 0),
            RETURN(SECCOMP_RET_ALLOW),
            RETURN(SECCOMP_RET_ERRNO | EINVAL),
        };
        return filter(code, sizeof code / sizeof *code);
    }
    if (!strcmp(what, "drops") || !strcmp(what, "rings")) {
        unsigned call = what[0] == 'd' ? SYS_process_madvise : SYS_io_uring_setup;
        struct sock_filter code[] = {
            LOAD(nr),
            IS(call, 1, 0),
            RETURN(SECCOMP_RET_ALLOW),
            RETURN(SECCOMP_RET_ERRNO | ENOSYS),
        };
        return filter(code, sizeof code / sizeof *code);
    }
    errno = EINVAL;
    return -1;
}

int main(int count, char **words) {
    int at = 1;
    for (; at < count && strcmp(words[at], "--"); at++)
        if (take(words[at])) {
            perror(words[at]);
            return 125;
        }
    if (at + 1 >= count)
        return 125;
    execvp(words[at + 1], words + at + 1);
    perror(words[at + 1]);
    return 126;
}
