/* floor: the least that a Redlock client can do over N masters, in plain C.
 *
 * One pair is an acquire and its release.
 *   acquire  20 random bytes from the kernel as a hex token; SET key token NX PX ttl to
 *            every master before any reply is read; read until a quorum of +OK; check
 *            that validity is left (CLOCK_BOOTTIME, 1 % drift and 2 ms).
 *   release  EVALSHA compare-and-delete to every master; read until a quorum of :1.
 * No retries, no errors survived, no objects: anything unexpected ends the program. So
 * every client that keeps the algorithm's promises does at least this work.
 *
 * Late replies. The masters beyond the quorum answer after the operation is over. TCP
 * keeps their order, so one number per master, `in_flight`, is the whole FIFO: a reply
 * counts for the running operation only when it is the last one in flight; an older one
 * is checked against the operation that it belongs to (they alternate) and skipped.
 *
 * Why it waits as it does: with several masters, one recv() on each, as the first have
 * often answered while the last was written to; then poll(). Eight ways were measured
 * in one program in alternation, 300 pairs a block, in three runs (151 blocks on 2 cores;
 * 101 on 1 core and 101 on 2, machine in use). p50 against plain poll(), then recv() of
 * the readable masters in order until the quorum; lowest and highest of the three runs:
 *                                                  N = 1        N = 3        N = 5
 *   plain poll() again: the noise               1.00 - 1.00  1.00 - 1.01  1.00 - 1.01
 *   this one: recv() on all first, if N > 1         (same)   0.99 - 0.99  0.99 - 1.00
 *   recv() on all but the last first            1.00 - 1.00  0.98 - 1.01  0.98 - 1.03
 *   recv() on a quorum of them first            1.00 - 1.01  0.98 - 1.01  0.99 - 1.01
 *   recv() first, until one has no answer       1.00 - 1.02  0.99 - 1.01  0.99 - 1.01
 *   poll(), recv() past the quorum as well      1.00 - 1.00  0.99 - 1.01  1.01 - 1.03
 *   epoll, level-triggered                      1.01 - 1.03  1.01 - 1.01  1.01 - 1.01
 *   epoll, edge-triggered                       1.01 - 1.01  0.99 - 1.03  1.00 - 1.01
 * So the way of waiting hardly matters. This one won by no more than the noise in p50,
 * and by 1 to 3 % in CPU; against plain poll() it makes fewer system calls on 2 cores
 * and more on 1. To wait for certain masters (poll() of a quorum, blocking recv()) was
 * 3 to 17 % slower at N = 5. It sleeps in poll() and never spins. The cost is in send(),
 * which wakes the server, and in sleep. io_uring is left out: many container profiles
 * forbid it.
 *
 * `floor native ...` releases by DELIFEQ, where a server has it (Valkey from 9.0).
 *
 * Use: floor [native] KEY PORT...      on 127.0.0.1; prints "ready"; then, for each line
 *      run PAIRS              one line of JSON: pairs, wall_ns, cpu_ns (this process),
 *                             syscalls (each wrapper call counted), latencies_ns.
 * Ends with its standard input, after the replies in flight.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { MAX_MASTERS = 15, TOKEN_BYTES = 20, TTL_MS = 10000, REPLY_TIMEOUT_MS = 5000 };
enum operation { ACQUIRE, RELEASE };

struct command { char bytes[256]; size_t size; char *token; };
struct master { int fd, in_flight; size_t size; char buffer[256]; };

static struct master masters[MAX_MASTERS];
static struct command commands[2];
static int count, quorum;
static long syscalls;

static const char RELEASE_SCRIPT[] =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end "
    "return 0";

static void fail(const char *call) { perror(call); exit(1); }

static long now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now); /* vDSO, or one system call for the CPU clock */
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* Return 1 if this reply is a vote for the running operation, 0 if it is a late one. */
static int count_reply(struct master *from, enum operation running, const char *reply) {
    if (!from->in_flight) { fputs("floor: an unexpected reply\n", stderr); exit(1); }
    int operation = running ^ ((from->in_flight - 1) & 1);
    if (operation == ACQUIRE ? reply[0] != '+' : strncmp(reply, ":1\r", 3)) {
        fprintf(stderr, "floor: not granted, or not deleted: %.40s\n", reply);
        exit(1);
    }
    return --from->in_flight == 0;
}

/* Read the replies of one master; return its votes for the running operation. */
static int receive(struct master *master, enum operation running) {
    size_t room = sizeof master->buffer - 1 - master->size;
    syscalls++;
    ssize_t got = recv(master->fd, master->buffer + master->size, room, 0);
    if (got < 0 && errno == EAGAIN) return 0;
    if (got <= 0) fail("recv");
    int votes = 0;
    char *start = master->buffer, *end = start + master->size + got, *newline;
    *end = 0;
    while ((newline = memchr(start, '\n', end - start))) {
        votes += count_reply(master, running, start);
        start = newline + 1;
    }
    master->size = end - start;
    if (master->size) memmove(master->buffer, start, master->size);
    return votes;
}

/* Sleep until a master with a reply in flight is readable; read `wanted` votes. */
static int wait_for_votes(enum operation running, int wanted) {
    struct pollfd fds[MAX_MASTERS];
    struct master *waited_for[MAX_MASTERS];
    int n = 0, votes = 0;
    for (int i = 0; i < count; i++)
        if (masters[i].in_flight) {
            fds[n] = (struct pollfd){.fd = masters[i].fd, .events = POLLIN};
            waited_for[n++] = &masters[i];
        }
    syscalls++;
    if (poll(fds, n, REPLY_TIMEOUT_MS) <= 0) fail("poll");
    for (int i = 0; i < n && votes < wanted; i++)
        if (fds[i].revents) votes += receive(waited_for[i], running);
    return votes;
}

static void run_operation(enum operation operation) {
    const struct command *command = &commands[operation];
    for (int i = 0; i < count; i++) {
        syscalls++;
        if (send(masters[i].fd, command->bytes, command->size, MSG_NOSIGNAL) !=
            (ssize_t)command->size)
            fail("send");
        masters[i].in_flight++;
    }
    int votes = 0;
    if (count > 1) /* a single master has had no time to answer yet */
        for (int i = 0; i < count && votes < quorum; i++)
            votes += receive(&masters[i], operation);
    while (votes < quorum) votes += wait_for_votes(operation, quorum - votes);
}

static void run_pair(void) {
    static const char HEX[] = "0123456789abcdef";
    unsigned char random[TOKEN_BYTES];
    syscalls++;
    if (getrandom(random, sizeof random, 0) != sizeof random) fail("getrandom");
    char *token = commands[ACQUIRE].token;
    for (int i = 0; i < TOKEN_BYTES; i++) {
        token[2 * i] = HEX[random[i] >> 4];
        token[2 * i + 1] = HEX[random[i] & 15];
    }
    memcpy(commands[RELEASE].token, token, 2 * TOKEN_BYTES);
    long start_ns = now_ns(CLOCK_BOOTTIME);
    run_operation(ACQUIRE);
    long elapsed_ns = now_ns(CLOCK_BOOTTIME) - start_ns;
    if (TTL_MS * 1000000L - elapsed_ns - (TTL_MS * 10000L + 2000000L) <= 0) {
        fputs("floor: no validity left\n", stderr);
        exit(1);
    }
    run_operation(RELEASE);
}

static void run_block(long pairs) {
    long *latencies_ns = calloc(pairs, sizeof *latencies_ns);
    if (!latencies_ns) fail("calloc");
    long syscalls_before = syscalls, cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    long block_start_ns = now_ns(CLOCK_MONOTONIC);
    for (long i = 0; i < pairs; i++) {
        long start_ns = now_ns(CLOCK_MONOTONIC);
        run_pair();
        latencies_ns[i] = now_ns(CLOCK_MONOTONIC) - start_ns;
    }
    long wall_ns = now_ns(CLOCK_MONOTONIC) - block_start_ns;
    cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
    printf("{\"pairs\":%ld,\"wall_ns\":%ld,\"cpu_ns\":%ld,\"syscalls\":%ld,"
           "\"latencies_ns\":[", pairs, wall_ns, cpu_ns, syscalls - syscalls_before);
    for (long i = 0; i < pairs; i++) printf(i ? ",%ld" : "%ld", latencies_ns[i]);
    puts("]}");
    fflush(stdout);
    free(latencies_ns);
}

/* Connect, load the script (blocking: before the clock runs), return its SHA1. */
static void open_master(struct master *master, int port, char sha1[41]) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    master->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(master->fd, (struct sockaddr *)&address, sizeof address))
        fail("connect");
    setsockopt(master->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    dprintf(master->fd, "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%zu\r\n%s\r\n",
            sizeof RELEASE_SCRIPT - 1, RELEASE_SCRIPT);
    if (recv(master->fd, master->buffer, 47, MSG_WAITALL) != 47) fail("SCRIPT LOAD");
    snprintf(sha1, 41, "%s", master->buffer + 5); /* after "$40\r\n" */
    fcntl(master->fd, F_SETFL, O_NONBLOCK);
}

static void encode_commands(const char *key, const char *sha1, int is_native) {
    char zeros[2 * TOKEN_BYTES + 1];
    memset(zeros, '0', sizeof zeros - 1);
    zeros[sizeof zeros - 1] = 0;
    struct command *acquire = &commands[ACQUIRE], *release = &commands[RELEASE];
    acquire->size = snprintf(
        acquire->bytes, sizeof acquire->bytes, "*6\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n"
        "$40\r\n%s\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n%d\r\n",
        strlen(key), key, zeros, TTL_MS);
    release->size = snprintf(
        release->bytes, sizeof release->bytes, "*5\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n"
        "$1\r\n1\r\n$%zu\r\n%s\r\n$40\r\n%s\r\n", sha1, strlen(key), key, zeros);
    if (is_native)
        release->size = snprintf(
            release->bytes, sizeof release->bytes, "*3\r\n$7\r\nDELIFEQ\r\n"
            "$%zu\r\n%s\r\n$40\r\n%s\r\n", strlen(key), key, zeros);
    acquire->token = strstr(acquire->bytes, zeros);
    release->token = strstr(release->bytes, zeros);
}

int main(int argc, char **argv) {
    int is_native = argc > 1 && !strcmp(argv[1], "native");
    argc -= is_native;
    argv += is_native;
    if (argc < 3 || argc - 2 > MAX_MASTERS || strlen(argv[1]) > 64) {
        fputs("usage: floor [native] KEY PORT...\n", stderr);
        return 2;
    }
    char line[64], sha1[41];
    for (int i = 2; i < argc; i++) open_master(&masters[count++], atoi(argv[i]), sha1);
    quorum = count / 2 + 1;
    encode_commands(argv[1], sha1, is_native);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        long pairs = strncmp(line, "run ", 4) ? 0 : atol(line + 4);
        if (pairs <= 0) { fprintf(stderr, "floor: bad line: %s", line); return 2; }
        run_block(pairs);
    }
    for (int i = 0; i < count; i++) /* a close with unread replies would be a reset */
        while (masters[i].in_flight) wait_for_votes(RELEASE, MAX_MASTERS);
    return 0;
}
