# cython: language_level=3
"""The engine under fastredlock: no policy, no public names. A table of contents.

How a lock is taken (docs/design.md, section 7): a table lists what a round sends, and
one RESP buffer is made of it (protocol/commands), which goes to the link of every
master before any reply is read (engine/sending, master/link); a driver polls with the
GIL released until the round is closed; bytes become replies (master/replies), replies
become votes (protocol/replies), and votes and the time become a verdict and a validity
(round/round).

A file is one subject, with a section for each noun of it, which other files refer to by
its name. It calls only functions of the files above it (a test forbids others, and
circles of files). A function begins with a prefix of its file: docs/design.md lists
them, in section 6.

The parts marked [pure] never see a clock or a descriptor: they are given bytes and
`now_ns`. Functions that may run without the GIL are `noexcept` and return 0 or -errno;
the driver turns that into a vote or an exception. An `int ... except -1` that ends
without a return has returned 0. Nothing here imports from fastredlock; the exceptions
raised are OSError, TypeError, ValueError (ClosedError), MemoryError and RuntimeError
(StateError).
"""

from system cimport *

include "imports.pxi"                   # names of C, CPython and POSIX
include "types.pxi"                     # operations, votes, verdicts, states
include "base.pyx"                      # time, tokens, bytes to be sent, a pass

include "round/electorate.pyx"          # who votes, and what is a quorum         [pure]
include "waiting/queue.pyx"             # who waits here, and for which turn      [pure]
include "round/key.pyx"                 # what is locked: a key, a slot           [pure]
include "round/fencing.pyx"             # the number of a grant                   [pure]
include "round/tokens.pyx"              # when a given token is used again        [pure]
include "round/round.pyx"               # one command to all masters; verdict     [pure]
include "round/batch.pyx"               # many rounds of one caller               [pure]
include "round/local.pyx"               # what this process decides alone         [pure]

include "protocol/commands.pyx"         # operation x kind -> script -> RESP      [pure]
include "protocol/replies.pyx"          # a reply -> a vote                       [pure]
include "protocol/lists.pyx"            # which masters other clients have       [pure]
include "protocol/handshake.pyx"        # a connection's first commands           [pure]

include "master/link.pyx"               # descriptors: opened, written, polled, read
include "master/lookup.pyx"             # names, logins and TLS files, in threads
include "master/in_flight.pyx"          # sent, not answered; deferred releases   [pure]
include "master/routes.pyx"             # a cluster's nodes: which has a key      [pure]
include "master/master.pyx"             # configured, votes, is told; guard      [pure]
include "master/connection.pyx"         # from an address to READY; sent; its end
include "master/resending.pyx"          # sent again; is it still the primary?
include "master/nodes.pyx"              # a cluster's connections: made, led, closed
include "master/replies.pyx"            # bytes -> replies -> votes, pushes, numbers

include "drivers/awaiting.pyx"          # what a task awaits: a round, a delay
include "drivers/leader.pyx"            # threads that share an engine; greenlets

include "engine/sending.pyx"            # connections, and what is sent: the last stage

include "waiting/gate.pyx"              # the master that keeps a queue: asked, answers
include "waiting/idle.pyx"              # keys that are idle in this process
include "waiting/turns.pyx"             # from one holder to the next; callers that wait

include "engine/pass.pyx"               # a round starts, is judged; one pass, in stages
include "engine/ending.pyx"             # what must be in before an end

include "drivers/blocking.pyx"          # threads: a step; to lead, to follow; the exit
include "engine/engine.pyx"             # the N masters
include "drivers/asyncio.pyx"           # an event loop runs the engine

include "calls/observer.pyx"            # what is notified at the end of each call
include "calls/fields.pyx"              # fields of drivers, leases, and kept leases
include "calls/call.pyx"                # a call; to take: its tries
include "calls/lease.pyx"               # calls to extend and release, also by a body

include "drivers/by_hand.pyx"           # a driver without sockets: simulator, fuzzer
