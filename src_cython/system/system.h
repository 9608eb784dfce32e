/* Of what Linux has and POSIX has not: one of two files of the same names. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__) && !defined(FASTREDLOCK_PORTABLE)
#include "linux.h"
#else
#include "portable.h"
#endif
