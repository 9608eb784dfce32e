# What a connection needs before it is opened, and what may block: the address of a host
# name, a login, and the files of TLS. Each in a thread of its own.

# --- lookup ---------------------------------------------------------------------------
# Where a master is: a literal address, a unix path, or a host name, which is looked up
# in a native thread of its own, one per name at a time.
#
# getaddrinfo(3) has no non-blocking form and can take seconds, for which no round may
# wait. So a name, and only a name, is looked up by a short-lived thread, at
# every (re)connect: a server may have moved. The thread runs no Python: libraries that
# patch Python's threads (gevent) do not reach it, and neither does the end of
# the interpreter. When it is done it sets an event; every connection that waits for the
# answer polls a duplicate of its descriptor.
#
# A name has one look-up under way in this process, however many masters, attempts and
# engines ask for it. A connection that gives up leaves it running; the next attempt
# attaches to it, or takes its answer if that is still fresh. An answer that was used is
# forgotten, so that the next connection asks anew.
#
# The state belongs to the thread and to a LookUp; the last owner frees it. A forked
# child has no such thread: it starts anew, and frees its copy of the state.

cdef enum:
    MAX_ADDRESSES = 8      # per name; each gets a share of the connect timeout
    LONGEST_NAME = 256
    FRESH_NS = 2_000_000_000     # an unused answer; older ones are not used

cdef struct Address:
    sockaddr_storage storage
    socklen_t size

cdef struct LookUpState:
    int owners                   # the thread and the LookUp
    int is_done                  # written last by the thread
    Event done                   # set from then on
    int gai_error                # of getaddrinfo, 0 if none
    int64_t done_ns
    int count
    Address addresses[MAX_ADDRESSES]
    char host[LONGEST_NAME]
    char port[8]


@cython.final
@cython.internal
cdef class LookUp:
    cdef LookUpState *state
    cdef uint32_t generation     # of the process that has the thread
    cdef tuple name              # (host, port); None: it was no name, and needs none

    def __cinit__(self):
        self.generation = current_generation
        self.state = <LookUpState *>calloc(1, sizeof(LookUpState))
        if self.state == NULL:
            raise MemoryError
        self.state.owners = 1
        self.state.done.fd = -1

    def __dealloc__(self):
        if self.state == NULL:
            return
        if self.generation != current_generation:      # it has no thread here
            self.state.owners = 1
        look_up_disown(self.state)


cdef LookUp look_up_of_path(str path):
    cdef LookUp self = LookUp.__new__(LookUp)
    cdef Address *address = &self.state.addresses[0]
    cdef sockaddr_un *unix = <sockaddr_un *>&address.storage
    cdef bytes encoded = path.encode("utf-8", "surrogateescape")
    if len(encoded) >= <Py_ssize_t>sizeof(unix.sun_path):
        raise OSError(ENAMETOOLONG, "unix socket path")
    unix.sun_family = AF_UNIX
    memcpy(unix.sun_path, PyBytes_AS_STRING(encoded), len(encoded))
    address.size = sizeof(sockaddr_un)
    self.state.count = 1
    return self


cdef void look_up_find(LookUpState *state, int flags) noexcept nogil:
    # By getaddrinfo(3), which blocks, but for AI_NUMERICHOST.
    cdef addrinfo hints
    cdef addrinfo *found = NULL
    cdef addrinfo *each
    memset(&hints, 0, sizeof(hints))
    hints.ai_flags = flags
    hints.ai_family = AF_UNSPEC
    hints.ai_socktype = SOCK_STREAM
    state.gai_error = getaddrinfo(state.host, state.port, &hints, &found)
    if state.gai_error != 0:
        return
    each = found
    while each != NULL and state.count < MAX_ADDRESSES:
        memcpy(&state.addresses[state.count].storage, each.ai_addr, each.ai_addrlen)
        state.addresses[state.count].size = each.ai_addrlen
        state.count += 1
        each = each.ai_next
    freeaddrinfo(found)


cdef dict look_ups = {}      # those with answers that are not used yet, by name


cdef void look_up_disown(LookUpState *state) noexcept nogil:
    if atomic_decrease(&state.owners) == 0:
        event_close(&state.done)
        free(state)


cdef void *look_up_run(void *given) noexcept nogil:
    # The thread: it has no Python object and no lock of ours.
    cdef LookUpState *state = <LookUpState *>given
    look_up_find(state, 0)
    state.done_ns = clock_ns()
    atomic_give(&state.is_done)
    event_set(&state.done)
    look_up_disown(state)
    return NULL


cdef int look_up_begin(LookUp self) except -1:
    # The thread is detached, and has all signals blocked: they are for Python's.
    cdef pthread_t thread
    cdef sigset_t all_signals, before
    cdef int error
    if event_open(&self.state.done) != 0:
        raise OSError(errno, "event_open")
    self.state.owners = 2
    sigfillset(&all_signals)
    pthread_sigmask(SIG_SETMASK, &all_signals, &before)
    error = pthread_create(&thread, NULL, look_up_run, self.state)
    pthread_sigmask(SIG_SETMASK, &before, NULL)
    if error != 0:
        self.state.owners = 1
        raise OSError(error, "no thread for the name look-up")
    pthread_detach(thread)


cdef LookUp look_up_of(bytes host, bytes port, int64_t now_ns):
    """Take an address as it is; attach to a name's look-up, or begin one.

    Raises OSError.
    """
    cdef tuple name = (host, port)
    cdef LookUp found = look_ups.get(name)
    if found is not None and not look_up_is_stale(found, now_ns):
        return found
    for old in list(look_ups.values()):
        if look_up_is_stale(<LookUp>old, now_ns):
            look_up_forget(<LookUp>old)
    if len(host) >= LONGEST_NAME or len(port) >= 8:
        raise OSError(ENAMETOOLONG, "host name")
    found = LookUp.__new__(LookUp)
    memcpy(found.state.host, <const char *>host, len(host))
    memcpy(found.state.port, <const char *>port, len(port))
    look_up_find(found.state, AI_NUMERICHOST)
    if found.state.count == 0:
        look_up_begin(found)
        found.name = name
        look_ups[name] = found
    return found


cdef bint look_up_is_stale(LookUp self, int64_t now_ns) noexcept:
    if self.generation != current_generation:
        return True
    return atomic_get(&self.state.is_done) and now_ns - self.state.done_ns > FRESH_NS


cdef int look_up_forget(LookUp self) except -1:
    # Its answer is being used, or too old: the next connection looks the name up anew.
    if look_ups.get(self.name) is self:
        del look_ups[self.name]


# --- preparing ------------------------------------------------------------------------
# What a connection needs from the caller's side before it is opened: a login from his
# function, and TLS files read again. In a thread of its own, one per connection.
#
# The function may ask a store of secrets over the network, take seconds, raise, or call
# us back, and files may be on a disk that is slow. So neither runs inside a step: no
# round waits for them, and a lock that the function takes, of this engine too,
# is a call like any other thread's. The thread sets an event when it is done, and the
# connection polls a duplicate of its descriptor, as for a name (lookup).
#
# What it gives is used for one connection, so a password that was refused is asked for
# anew at the next. A connection that gives up leaves the thread running; the next one
# of this master waits for the same thread, or takes what it gave if that is still
# fresh: so no more than one runs for each master. A forked child has no such thread.
#
# The thread holds the function and this object alone, never the engine: it may outlive
# all else, and ends with the interpreter.

cdef int64_t PREPARED_FRESH_NS = 60_000_000_000      # a client that blocks may be idle


@cython.final
@cython.internal
cdef class Preparing:
    cdef Event done              # set from then on
    cdef int is_done             # written last by the thread
    cdef int64_t done_ns
    cdef uint32_t generation     # of the process that has the thread
    cdef object given            # (user, password, ssl.SSLContext), each may be None...
    cdef str failure             # ...or why there is none

    def __cinit__(self):
        self.done.fd = -1

    def __dealloc__(self):
        event_close(&self.done)

    def run(self, prepare):
        """Call it, in this thread; an error is named by its type, for it may show a
        password."""
        try:
            given = prepare()
            if type(given) is str:
                self.failure = given
            else:
                self.given = given
        except BaseException as error:
            self.failure = f"credentials: their function raised {type(error).__name__}"
        finally:
            self.done_ns = clock_ns()
            atomic_give(&self.is_done)
            event_set(&self.done)


cdef Preparing preparing_begin(object prepare):
    """Call it in a new thread. Raises RuntimeError or OSError where there is none."""
    # gevent's, where it has patched it: then it is a greenlet.
    from _thread import start_new_thread

    cdef Preparing self = Preparing()
    if event_open(&self.done) != 0:
        raise OSError(errno, "event_open")
    self.generation = current_generation
    start_new_thread(self.run, (prepare,))
    return self


cdef bint preparing_is_stale(Preparing self, int64_t now_ns) noexcept:
    if self.generation != current_generation:
        return True
    return atomic_get(&self.is_done) and now_ns - self.done_ns > PREPARED_FRESH_NS
