/* pipeline_floor: the least that a Redlock client can do for many locks at a time.
 *
 * The promises are floor.c's: a token of 20 random bytes for every lock and round, all
 * masters asked, a quorum for every single lock, validity checked by CLOCK_BOOTTIME,
 * every reply looked at. The batch is the difference: the SETs of all its locks go to a
 * master in one send(), so do its releases, and a lock's votes are counted by its place
 * in the batch. Every batch has keys of its own, which no other client wants.
 *
 * IN_FLIGHT pairs are under way at a time, in IN_FLIGHT / BATCH batches. With one batch
 * the client has nothing to do while the masters work; with two it encodes one while
 * the other is under way. That is worth 0 to 8 % (N = 3 and 5, 2 cores), because the
 * masters are the bottleneck: the bench has one batch in flight, as acquire_each()
 * and release_each() have.
 *
 * Operations are numbered, and number o belongs to batch o % batches; a batch takes and
 * releases in alternation. So TCP's order makes two numbers per master the whole FIFO:
 * the operation, and which of its locks, of the next reply. A reply votes while its
 * batch is in that very operation; a later one (the masters beyond the quorum) is
 * checked and skipped. An operation is over when every lock has its quorum and every
 * master was sent all of it, so that the buffer can be used again. The rest that does
 * not fit into a socket is sent when poll() allows it, and replies are read meanwhile.
 *
 * `pipeline_floor native ...` releases by DELIFEQ, where a server has it (Valkey from 9.0).
 *
 * Use: pipeline_floor [native] KEY BATCH IN_FLIGHT PORT...     otherwise as floor.c: "ready",
 *      then for each line "run PAIRS" (rounded up to full batches) one line of JSON;
 *      latencies_ns has one entry per batch, from its first SET to its last release.
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

enum { MAX_MASTERS = 15, MAX_IN_FLIGHT = 10000, TOKEN_BYTES = 20, TTL_MS = 10000 };
enum { REPLY_TIMEOUT_MS = 5000, MAX_COMMAND = 256 };
enum kind { ACQUIRE, RELEASE };

/* All commands of one operation: each `stride` bytes, its token at `token`. */
struct commands { char *bytes; size_t stride, token; };
struct batch {
    struct commands commands[2];
    long operation;            /* the one that it is in */
    int *votes, without_quorum; /* per lock; how many locks still wait for theirs */
    long start_ns, pair_start_ns;
};
struct master {
    int fd;
    long writing; size_t written;  /* operation, and how much of it was sent */
    long reading; int lock;        /* of the next reply */
    size_t size; char buffer[1 << 16];
};

static struct master masters[MAX_MASTERS];
static struct batch *batches;
static int count, quorum, batch_size, batch_count, is_native;
static long started; /* operations, since the program began */
static long syscalls;

static const char RELEASE_SCRIPT[] =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end "
    "return 0";

static void fail(const char *call) { perror(call); exit(1); }
static void refuse(const char *reason) { fprintf(stderr, "%s\n", reason); exit(1); }

static long now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static struct batch *batch_of(long operation) {
    return &batches[operation % batch_count];
}

static enum kind kind_of(long operation) { return operation / batch_count & 1; }

/* Send a master all started operations: one send() each, if its socket has room. */
static void write_master(struct master *master) {
    while (master->writing < started) {
        struct commands *commands =
            &batch_of(master->writing)->commands[kind_of(master->writing)];
        size_t left = batch_size * commands->stride - master->written;
        const char *rest = commands->bytes + master->written;
        syscalls++;
        ssize_t sent = send(master->fd, rest, left, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) return;
        if (sent < 0) fail("send");
        master->written += sent;
        if ((size_t)sent < left) return;
        master->writing++;
        master->written = 0;
    }
}

/* Read the replies of one master: check every reply, count it if it votes. */
static void read_master(struct master *master) {
    static const char *const EXPECTED[2] = {"+OK\r\n", ":1\r\n"};
    syscalls++;
    ssize_t got = recv(master->fd, master->buffer + master->size,
                       sizeof master->buffer - master->size, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) fail("recv");
    const char *reply = master->buffer, *end = reply + master->size + got;
    for (;;) {
        const char *expected = EXPECTED[kind_of(master->reading)];
        size_t size = strlen(expected);
        if ((size_t)(end - reply) < size) break;
        if (master->reading >= started) refuse("an unexpected reply");
        if (memcmp(reply, expected, size)) refuse("not granted, or not deleted");
        reply += size;
        struct batch *batch = batch_of(master->reading);
        if (batch->operation == master->reading)
            batch->without_quorum -= ++batch->votes[master->lock] == quorum;
        if (++master->lock == batch_size) {
            master->lock = 0;
            master->reading++;
        }
    }
    master->size = end - reply;
    memmove(master->buffer, reply, master->size);
}

/* Sleep until a master can be read, or written to where a write is left; serve it. */
static void wait_for_masters(void) {
    struct pollfd fds[MAX_MASTERS];
    for (int i = 0; i < count; i++) {
        int is_full = masters[i].writing < started;
        int is_expected = masters[i].reading < started;
        fds[i] = (struct pollfd){.fd = is_expected ? masters[i].fd : -1,
                                 .events = POLLIN | (is_full ? POLLOUT : 0)};
    }
    syscalls++;
    if (poll(fds, count, REPLY_TIMEOUT_MS) <= 0) fail("poll");
    for (int i = 0; i < count; i++) {
        if (fds[i].revents & ~POLLOUT) read_master(&masters[i]);
        if (fds[i].revents & POLLOUT) write_master(&masters[i]);
    }
}

static void draw_tokens(struct batch *batch) {
    static const char HEX[] = "0123456789abcdef";
    static unsigned char random[MAX_IN_FLIGHT * TOKEN_BYTES], *byte;
    size_t size = batch_size * TOKEN_BYTES, drawn = 0;
    while (drawn < size) { /* over 256 bytes getrandom() may return less */
        syscalls++;
        ssize_t got = getrandom(random + drawn, size - drawn, 0);
        if (got < 0) fail("getrandom");
        drawn += got;
    }
    byte = random;
    const struct commands *acquire = &batch->commands[ACQUIRE];
    const struct commands *release = &batch->commands[RELEASE];
    for (int lock = 0; lock < batch_size; lock++) {
        char *token = acquire->bytes + lock * acquire->stride + acquire->token;
        for (int i = 0; i < TOKEN_BYTES; i++, byte++) {
            token[2 * i] = HEX[*byte >> 4];
            token[2 * i + 1] = HEX[*byte & 15];
        }
        memcpy(release->bytes + lock * release->stride + release->token, token,
               2 * TOKEN_BYTES);
    }
}

static void start_operation(void) {
    struct batch *batch = batch_of(started);
    long pair_start_ns = now_ns(CLOCK_MONOTONIC);
    if (kind_of(started) == ACQUIRE) {
        batch->pair_start_ns = pair_start_ns;
        draw_tokens(batch);
    }
    memset(batch->votes, 0, batch_size * sizeof *batch->votes);
    batch->without_quorum = batch_size;
    batch->operation = started++;
    batch->start_ns = now_ns(CLOCK_BOOTTIME);
    for (int i = 0; i < count; i++) write_master(&masters[i]);
}

static int is_over(long operation) {
    for (int i = 0; i < count; i++)
        if (masters[i].writing <= operation) return 0;
    return batch_of(operation)->without_quorum == 0;
}

static void check_validity(const struct batch *batch) {
    long elapsed_ns = now_ns(CLOCK_BOOTTIME) - batch->start_ns;
    if (TTL_MS * 1000000L - elapsed_ns - (TTL_MS * 10000L + 2000000L) <= 0)
        refuse("no validity left");
}

static void run_block(long pairs) {
    long in_flight = (long)batch_size * batch_count;
    long rounds = (pairs + in_flight - 1) / in_flight, done = 0;
    long *latencies_ns = calloc(rounds * batch_count, sizeof *latencies_ns);
    if (!latencies_ns) fail("calloc");
    long syscalls_before = syscalls, cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    long block_start_ns = now_ns(CLOCK_MONOTONIC);
    long operation = started, end = started + 2 * rounds * batch_count;
    for (int i = 0; i < batch_count; i++) start_operation();
    for (; operation < end; operation++) {
        while (!is_over(operation)) wait_for_masters();
        struct batch *batch = batch_of(operation);
        if (kind_of(operation) == ACQUIRE)
            check_validity(batch);
        else
            latencies_ns[done++] = now_ns(CLOCK_MONOTONIC) - batch->pair_start_ns;
        if (started < end) start_operation();
    }
    long wall_ns = now_ns(CLOCK_MONOTONIC) - block_start_ns;
    cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
    printf("{\"pairs\":%ld,\"wall_ns\":%ld,\"cpu_ns\":%ld,\"syscalls\":%ld,"
           "\"latencies_ns\":[", done * batch_size, wall_ns, cpu_ns,
           syscalls - syscalls_before);
    for (long i = 0; i < done; i++) printf(i ? ",%ld" : "%ld", latencies_ns[i]);
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

/* Every command of a kind has the same size: keys and tokens are of fixed width. */
static void encode_commands(struct commands *commands, enum kind kind, const char *key,
                            const char *sha1, int first_lock) {
    char token[2 * TOKEN_BYTES + 1], command[MAX_COMMAND];
    memset(token, '?', sizeof token - 1);
    token[sizeof token - 1] = 0;
    for (int lock = 0; lock < batch_size; lock++) {
        size_t key_size = strlen(key) + 6;
        commands->stride = kind == ACQUIRE
            ? snprintf(command, sizeof command, "*6\r\n$3\r\nSET\r\n$%zu\r\n%s:%05d\r\n"
                       "$40\r\n%s\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n%d\r\n",
                       key_size, key, first_lock + lock, token, TTL_MS)
            : snprintf(command, sizeof command, "*5\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n"
                       "$1\r\n1\r\n$%zu\r\n%s:%05d\r\n$40\r\n%s\r\n",
                       sha1, key_size, key, first_lock + lock, token);
        if (kind == RELEASE && is_native)
            commands->stride = snprintf(
                command, sizeof command, "*3\r\n$7\r\nDELIFEQ\r\n$%zu\r\n%s:%05d\r\n"
                "$40\r\n%s\r\n", key_size, key, first_lock + lock, token);
        commands->token = strstr(command, token) - command;
        if (!lock) commands->bytes = malloc(batch_size * commands->stride);
        if (!commands->bytes) fail("malloc");
        memcpy(commands->bytes + lock * commands->stride, command, commands->stride);
    }
}

int main(int argc, char **argv) {
    is_native = argc > 1 && !strcmp(argv[1], "native");
    argc -= is_native;
    argv += is_native;
    int in_flight = argc > 4 ? atoi(argv[3]) : 0;
    batch_size = argc > 4 ? atoi(argv[2]) : 0;
    if (argc - 4 > MAX_MASTERS || batch_size < 1 || in_flight > MAX_IN_FLIGHT ||
        in_flight < batch_size || in_flight % batch_size || strlen(argv[1]) > 64) {
        fputs("usage: pipeline_floor [native] KEY BATCH IN_FLIGHT PORT...\n", stderr);
        return 2;
    }
    char line[64], sha1[41];
    for (int i = 4; i < argc; i++) open_master(&masters[count++], atoi(argv[i]), sha1);
    quorum = count / 2 + 1;
    batch_count = in_flight / batch_size;
    batches = calloc(batch_count, sizeof *batches);
    if (!batches) fail("calloc");
    for (int i = 0; i < batch_count; i++) {
        batches[i].votes = calloc(batch_size, sizeof *batches[i].votes);
        if (!batches[i].votes) fail("calloc");
        for (enum kind kind = ACQUIRE; kind <= RELEASE; kind++)
            encode_commands(&batches[i].commands[kind], kind, argv[1], sha1,
                            i * batch_size);
    }
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        long pairs = strncmp(line, "run ", 4) ? 0 : atol(line + 4);
        if (pairs <= 0) { fprintf(stderr, "bad line: %s", line); return 2; }
        run_block(pairs);
    }
    for (int i = 0; i < count; i++) /* a close with unread replies would be a reset */
        while (masters[i].reading < started) wait_for_masters();
    return 0;
}
