# cython: language_level=3
"""The engine under fastredlock: no policy, no public names.

How a lock is taken, in the order of the files below. The caller's token and ttl become
one RESP buffer (command), which goes to the socket of every master before any reply is
read (link, stream, engine); the driver polls with the GIL released until the round is
closed (wait); bytes become replies and replies become votes (reply); votes and the
time become a verdict and a validity (round).

`command`, `reply`, `round`, `debts` and `master` never see a clock or a descriptor:
they are given bytes and `now_ns`. Functions that may run without the GIL are `noexcept`
and return 0 or -errno; the driver turns that into a vote or an exception. Nothing here
imports from fastredlock; the exceptions raised are OSError, ValueError (ClosedError),
MemoryError and RuntimeError (StateError).
"""

from system cimport *

include "types.pxi"     # the words
include "clock.pyx"     # time, tokens, fork generation
include "buffer.pyx"    # bytes to be sent
include "command.pyx"   # what is asked, as RESP                          [pure]
include "round.pyx"     # votes and time -> verdict and validity          [pure]
include "uses.pyx"      # tokens that the caller gives, and gives again  [pure]
include "question.pyx"  # what a round asks, by which script              [pure]
include "reply.pyx"     # a reply -> a vote                               [pure]
include "link.pyx"      # one descriptor: open, send, receive
include "address.pyx"   # literal addresses, unix paths
include "lookup.pyx"    # host names, each in a native thread
include "facts.pyx"     # what a server says of itself                   [pure]
include "rights.pyx"    # what our user may not do there                 [pure]
include "guard.pyx"     # when a master may vote that lost its votes     [pure]
include "handshake.pyx"  # what a new connection says first               [pure]
include "tls.pyx"       # records in, plain text out, and back
include "debts.pyx"     # replies owed to us, releases owed to a master   [pure]
include "master.pyx"    # one master: its state, and what comes of replies
include "opening.pyx"   # from an address to READY; back-off
include "stream.pyx"    # commands and bytes out, bytes and whole replies in
include "hub.pyx"       # waiting where gevent or eventlet has patched the program
include "request.pyx"   # what a thread asks of the one that leads
include "word.pyx"      # how threads hear, one after the other
include "crowd.pyx"     # the threads that share an engine
include "turns.pyx"     # in which order the masters are written to and read
include "engine.pyx"    # the N masters: start, roll back, reopen
include "given.pyx"     # rounds whose token the caller gave
include "batch.pyx"     # many rounds under way, one who waits for all   [pure]
include "admission.pyx"  # rounds come in and go out; what is due            [pure]
include "wait.pyx"      # bytes to and from the sockets, poll
include "settlement.pyx"  # the replies that are waited for before something ends
include "threads.pyx"   # blocking callers: one leads, the others wait
include "closing.pyx"   # close(), and a release after it
include "takeover.pyx"  # an engine that was left in the middle of anything
include "future.pyx"    # what a task awaits
include "loop.pyx"      # awaiting callers: an event loop drives
include "context.pyx"   # a lease is left, an acquire undone: no signal in between
include "exit.pyx"      # the end of the interpreter
include "events.pyx"    # the same without sockets: simulator, fuzzer
