# A thread of ours is started in one step, between signals.
#
# A signal's handler may raise in any line of Python, `Thread.start()` included: a
# thread that was started already then ends before it has done anything, or what its
# starter has locked for it stays locked. So a thread without a name is started by a
# function of C. Handlers run in the main thread alone: that thread starts the one with
# a name (_locking/threads). An error is returned, not raised, so that no `except` of
# the caller takes a handler's exception for it.

import _thread      # by its name: gevent or eventlet may patch it later


def thread_begin(run):
    """Run this in a thread; return the error where none can be started, or None."""
    try:
        _thread.start_new_thread(run, ())
    except RuntimeError as error:
        return error
    return None


def thread_serve(baton, waker, run):
    """Wake the thread that has the baton; where none has, begin one that has it.

    Both are locks; `run` gives the baton back. Returns as `thread_begin`.
    """
    if not baton.acquire(False):
        if waker.locked():      # else it was woken before
            waker.release()
        return None
    has_begun = False
    try:
        error = thread_begin(run)
        has_begun = error is None
    finally:
        if not has_begun:
            baton.release()
    return error
