/* Loaded before libc (LD_PRELOAD) into a test's process: says where the names moving.test
   and <anything>.slow.test are, the latter after slow_ms, and counts calls. Its variables
   are set and read by ctypes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define COUNT(calls) __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED)

char moving_to[64];
int look_ups, slow_ms, sockets, connects, sends;

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **found)
{
    int (*next)(const char *, const char *, const struct addrinfo *,
                struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");

    if (hints != NULL && hints->ai_flags & AI_NUMERICHOST)
        return next(node, service, hints, found); /* of an address */
    COUNT(look_ups);
    if (node != NULL && strcmp(node, "moving.test") == 0)
        node = moving_to;
    if (node != NULL && strstr(node, ".slow.test") != NULL) {
        usleep(slow_ms * 1000);
        node = "127.0.0.1";
    }
    return next(node, service, hints, found);
}

int socket(int family, int type, int protocol)
{
    int (*next)(int, int, int) = dlsym(RTLD_NEXT, "socket");

    COUNT(sockets);
    return next(family, type, protocol);
}

int connect(int fd, const struct sockaddr *address, socklen_t size)
{
    int (*next)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");

    COUNT(connects);
    return next(fd, address, size);
}

ssize_t send(int fd, const void *data, size_t size, int flags)
{
    ssize_t (*next)(int, const void *, size_t, int) = dlsym(RTLD_NEXT, "send");

    COUNT(sends);
    return next(fd, data, size, flags);
}
