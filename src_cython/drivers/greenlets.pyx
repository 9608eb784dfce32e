# Waiting where gevent or eventlet has patched the program: through the thread's hub.
#
# There, many greenlets share one native thread, and a system call that sleeps freezes
# them all. So a greenlet never sleeps in the kernel: it looks at its descriptors
# without waiting, and lets the hub watch them while other greenlets run. Greenlets lead
# and follow as threads do (leader), each under its own identity: a greenlet
# that calls while another one of its thread leads is a follower. (By the thread's
# identity it would seem to be a signal handler inside the leader's step, and leave in
# the wrong order.)
#
# The hub's own greenlet (its callbacks, and a signal handler or a finalizer that runs
# in it) cannot wait through itself. It sleeps in the kernel, and takes its step inside
# that of a leader of its thread, which is suspended meanwhile. A thread without a hub
# sleeps in the kernel, too: there is no other greenlet in it.
#
# The core depends on neither library: it looks for them among the modules that the
# program has loaded.


import sys
from importlib import import_module


@cython.final
@cython.internal
cdef class GreenletHub:
    """The library that has patched this program."""

    cdef object current          # () -> the greenlet that runs
    cdef object find             # () -> the hub's greenlet in this thread, or None
    cdef object wait             # (fds to read, fds to write, seconds) -> any is ready


cdef dict modules = sys.modules
cdef GreenletHub patching = None         # found once: a patch is never undone
cdef Py_ssize_t bare_size = -1           # of `modules`, when neither was among them


cdef size_t greenlet_hub_caller() noexcept:
    # The identity of the greenlet that calls; 0 where it has to sleep in the kernel.
    global patching, bare_size
    if patching is None and len(modules) != bare_size:
        # A library that is loaded, or just being loaded, may not have patched anything.
        if is_patched(modules.get("gevent.monkey"), "is_module_patched"):
            patching = greenlet_hub_of_gevent()
        elif is_patched(modules.get("eventlet.patcher"), "is_monkey_patched"):
            patching = greenlet_hub_of_eventlet()
        elif "gevent.monkey" not in modules and "eventlet.patcher" not in modules:
            bare_size = len(modules)
    if patching is None:
        return 0
    hub = patching.find()
    current = patching.current()
    return 0 if hub is None or current is hub else <size_t><void *>current


cdef object greenlet_hub_current():
    # The greenlet that calls, be it the hub's; None where the program is not patched.
    greenlet_hub_caller()
    return None if patching is None else patching.current()


cdef bint is_patched(object library, str name) except -1:
    has = getattr(library, name, None)
    return has is not None and (has("socket") or has("select"))


cdef GreenletHub greenlet_hub_of_gevent():
    poll = import_module("gevent.select").poll

    def wait(readable, writable, seconds):
        # Not its select(), which asks the system's select(2) first: up to 1024.
        poller = poll()
        for fd in readable:
            poller.register(fd, POLLIN)
        for fd in writable:
            poller.register(fd, POLLIN | POLLOUT)
        poller.poll(seconds * 1000)

    cdef GreenletHub self = GreenletHub()
    self.current = import_module("greenlet").getcurrent
    self.find = import_module("gevent._hub_local").get_hub_if_exists
    self.wait = wait
    return self


cdef GreenletHub greenlet_hub_of_eventlet():
    hubs = import_module("eventlet.hubs")
    getcurrent = import_module("greenlet").getcurrent
    local = hubs._threadlocal

    def find():
        return getattr(getattr(local, "hub", None), "greenlet", None)

    def wait(readable, writable, seconds):
        # Not its select(): of several descriptors that are ready at once, the hub calls
        # back for each, and the second call ended whatever the greenlet did next, a
        # sleep or the wait of another library.
        hub, current, listeners = hubs.get_hub(), getcurrent(), []
        waiting = [current]

        def wake(*_):
            if waiting:
                waiting.pop().switch()

        def fail(*error):
            if waiting:
                waiting.pop().throw(*error)

        def ignore():
            pass

        timer = hub.schedule_call_global(seconds, wake)
        try:
            for fd in readable + writable:
                listeners.append(hub.add(hub.READ, fd, wake, fail, ignore))
            for fd in writable:
                listeners.append(hub.add(hub.WRITE, fd, wake, fail, ignore))
            hub.switch()
        finally:
            waiting.clear()
            timer.cancel()
            for listener in listeners:
                hub.remove(listener)

    cdef GreenletHub self = GreenletHub()
    self.current = getcurrent
    self.find = find
    self.wait = wait
    return self


cdef int greenlet_hub_wait(list readable, list writable, int64_t wait_ns) except -1:
    """Let other greenlets run until one of these is ready, or for so long.

    Raises what is thrown into the greenlet, and OSError in a forked child, which has a
    copy of the greenlet: what it waits for is its parent's.
    """
    cdef uint32_t generation = current_generation
    patching.wait(readable, writable, wait_ns / 1e9)
    if generation != current_generation:
        raise OSError(ECANCELED, "forked while this call waited")
    return 0
