/* Loaded before libc (LD_PRELOAD) into a test's process: says where <anything>.slow.test
   is, after slow_ms, and counts look-ups. Its variables are set and read by ctypes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

int look_ups, slow_ms;

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **found)
{
    int (*next)(const char *, const char *, const struct addrinfo *,
                struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");

    if (hints != NULL && hints->ai_flags & AI_NUMERICHOST)
        return next(node, service, hints, found); /* of an address */
    __atomic_add_fetch(&look_ups, 1, __ATOMIC_RELAXED);
    if (node != NULL && strstr(node, ".slow.test") != NULL) {
        usleep(slow_ms * 1000);
        node = "127.0.0.1";
    }
    return next(node, service, hints, found);
}
