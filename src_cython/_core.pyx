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
include "protocol/command.pyx"   # what is asked, as RESP                          [pure]
include "round/round.pyx"     # votes and time -> verdict and validity          [pure]
include "round/token_use.pyx"      # tokens that the caller gives, and gives again  [pure]
include "protocol/scripts.pyx"  # what a round asks, by which script              [pure]
include "protocol/reply.pyx"     # a reply -> a vote                               [pure]
include "master/link.pyx"      # one descriptor: open, send, receive
include "master/address.pyx"   # literal addresses, unix paths
include "master/lookup.pyx"    # host names, each in a native thread
include "protocol/server_info.pyx"     # what a server says of itself                   [pure]
include "protocol/rights.pyx"    # what our user may not do there                 [pure]
include "master/restart_guard.pyx"     # when a master may vote that lost its votes     [pure]
include "protocol/handshake.pyx"  # what a new connection says first               [pure]
include "master/tls.pyx"       # records in, plain text out, and back
include "master/in_flight.pyx"     # replies owed to us, releases owed to a master   [pure]
include "master/master.pyx"    # one master: its state, and what comes of replies
include "master/connect.pyx"   # from an address to READY; back-off
include "master/io.pyx"    # commands and bytes out, bytes and whole replies in
include "drivers/greenlet_hub.pyx"       # waiting where gevent or eventlet has patched the program
include "drivers/follower.pyx"   # what a thread asks of the one that leads
include "drivers/wakeups.pyx"      # how threads hear, one after the other
include "drivers/leader.pyx"     # the threads that share an engine
include "engine/order.pyx"     # in which order the masters are written to and read
include "engine/engine.pyx"    # the N masters: start, roll back, reopen
include "engine/given_tokens.pyx"     # rounds whose token the caller gave
include "round/batch.pyx"     # many rounds under way, one who waits for all   [pure]
include "engine/admission.pyx"  # rounds come in and go out; what is due            [pure]
include "engine/exchange.pyx"      # bytes to and from the sockets, poll
include "engine/settlement.pyx"  # the replies that are waited for before something ends
include "drivers/blocking.pyx"   # blocking callers: one leads, the others wait
include "engine/close.pyx"   # close(), and a release after it
include "engine/takeover.pyx"  # an engine that was left in the middle of anything
include "drivers/asyncio_future.pyx"    # what a task awaits
include "drivers/asyncio.pyx"      # awaiting callers: an event loop drives
include "drivers/with_body.pyx"   # a lease is left, an acquire undone: no signal in between
include "drivers/interpreter_exit.pyx"      # the end of the interpreter
include "drivers/by_hand.pyx"    # the same without sockets: simulator, fuzzer
