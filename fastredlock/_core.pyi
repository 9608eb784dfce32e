from _thread import LockType
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any, Final, Self, TypeAlias, TypeVar, final
from weakref import ReferenceType

from typing_extensions import disjoint_base

_T = TypeVar("_T")
_Method = TypeVar("_Method", bound=Callable[..., Any])
_Keys: TypeAlias = bytes | tuple[bytes, ...] | Permits | Shared
_Work: TypeAlias = Round | Batch

class ClosedError(ValueError): ...
class StateError(RuntimeError): ...

class Operation(IntEnum):
    ACQUIRE = 0
    EXTEND = 1
    RELEASE = 2
    INSPECT = 3
    BREAK = 4
    PING = 5
    ASK_TURN = 6
    LEAVE_QUEUE = 7

class Vote(IntEnum):
    PENDING = 0
    GRANTED = 1
    TAKEN = 2
    FAILED = 3
    SILENT = 4
    GONE = 5

class Verdict(IntEnum):
    OPEN = 0
    WON = 1
    TAKEN = 2
    UNREACHABLE = 3
    TOO_LATE = 4

class MasterState(IntEnum):
    CLOSED = 0
    CONNECTING = 1
    HANDSHAKE = 2
    READY = 3
    BACKOFF = 4

def now_ns() -> int: ...
def is_portable() -> bool: ...
def draw_token() -> bytes: ...
def draw_fraction() -> float: ...

@final
class TokenSource:
    def __init__(self, owner: bytes, has_pid: bool = False) -> None: ...
    def draw(self) -> bytes: ...

def end_with_parent(signal: int) -> bool: ...
def adopt_orphans() -> bool: ...
def fork_generation() -> int: ...

@final
class Script:
    def __init__(self, source: bytes, sha1: bytes) -> None: ...
    source: Final[bytes]
    sha1: Final[bytes]

@final
class Scripts:
    def __init__(
        self,
        named: dict[str, Script],
        releases_natively: bool = False,
        name_prefix: bytes = b"",
    ) -> None: ...
    named: Final[dict[str, Script]]
    name_prefix: Final[bytes]
    keeps_queues: Final[bool]
    is_fencing: Final[bool]
    releases_natively: Final[bool]

@final
class Shared:
    def __init__(self, resource: bytes) -> None: ...
    name: Final[bytes]

@final
class SharedOf:
    def __init__(self, encode: Callable[[str | bytes], bytes]) -> None: ...
    def __call__(self, resource: str | bytes) -> Shared: ...
    encode: Final[Callable[[str | bytes], bytes]]

@final
class Permits:
    def __init__(self, resource: bytes, count: int) -> None: ...
    name: Final[bytes]
    count: Final[int]

@final
class PermitsOf:
    def __init__(self, encode: Callable[[str | bytes], bytes], count: int) -> None: ...
    def __call__(self, resource: str | bytes) -> Permits: ...
    encode: Final[Callable[[str | bytes], bytes]]
    count: Final[int]

@final
class Terms:
    def __init__(
        self,
        ttl_ms: int,
        drift_ns: int,
        timeout_ns: int,
        has_expiry: bool = True,
        idle_ns: int = 0,
        is_of_rate: bool = False,
    ) -> None: ...
    is_of_rate: Final[bool]
    ttl_ms: Final[int]
    drift_ns: Final[int]
    timeout_ns: Final[int]
    has_expiry: Final[bool]
    idle_ns: Final[int]
    def last_round_ns(self, round_trip_ns: int) -> int: ...

@final
class Electorate:
    def __init__(self, count: int, first: int = 0, second: int = 0) -> None: ...
    count: Final[int]
    quorum: Final[int]
    needed: Final[str]
    members: Final[int]
    first: Final[int]
    second: Final[int]
    def only_in(self, vote: int) -> str | None: ...
    def wins(self, masters: int) -> bool: ...

@final
class Client:
    def __init__(self, line: str) -> None: ...
    address: Final[str]
    name: Final[str]
    db: Final[str]
    age_s: Final[str]
    keys: Final[str]
    identity: Final[str]
    max_ttl_ms: Final[int]
    lists: Final[tuple[frozenset[str], ...]]

@final
class Lists:
    keys: Final[str]
    lists: Final[tuple[frozenset[str], ...]]
    names: Final[dict[str, str]]
    is_strict: Final[bool]
    def __init__(
        self,
        keys: str,
        lists: tuple[frozenset[str], ...],
        names: dict[str, str],
        max_ttl_ms: int,
        is_strict: bool,
        tokens: TokenSource | None = None,
    ) -> None: ...
    def told(self, identity: bytes) -> bytes: ...
    def is_to_ask(self, client_id: int, client_count: str) -> bool: ...
    def met(self, reply: object, db: str) -> tuple[str | None, str | None]: ...

def clients_in(reply: object, but: str = ...) -> list[Client]: ...
def are_neighbours(
    lists: tuple[frozenset[str], ...], others: tuple[frozenset[str], ...]
) -> bool: ...
def lists_text(lists: tuple[frozenset[str], ...], names: dict[str, str]) -> str: ...
def has_quorum(voted: Iterable[object], electorate: Electorate) -> bool: ...

@final
class Round:
    left_ns: int
    attempt: int
    is_shown: bool
    is_released: bool
    def __init__(
        self,
        operation: int,
        resource: bytes,
        token: bytes,
        terms: Terms,
        master_count: int,
    ) -> None: ...
    operation: Final[Operation]
    resource: Final[bytes]
    slot: Final[int]
    keys: Final[tuple[bytes, ...] | None]
    token: Final[bytes]
    terms: Final[Terms]
    began_ns: Final[int]
    opened_ns: Final[int]
    closed_ns: Final[int]
    deadline_ns: Final[int]
    valid_until_ns: Final[int]
    fence: Final[int | None]
    is_shared: Final[bool]
    may_hold: Final[int]
    electorate: Final[Electorate]
    generation: Final[int]
    is_opened: Final[bool]
    is_withheld: Final[bool]
    is_won: Final[bool]
    is_finished: Final[bool]
    is_submitted: Final[bool]
    lease_state: Any
    needs_all: bool
    verdict: Final[Verdict]
    def votes(self) -> list[tuple[Vote, Any, float | None]]: ...
    def wait_in_turn(
        self,
        since_ns: int,
        keeps_turn: bool = False,
        until_ns: int = -1,
        has_waited: bool = False,
        pause_ns: int = 0,
        places: object = None,
    ) -> None: ...
    places: Final[object]
    lacks_its_gate: Final[bool]
    has_turn: Final[bool]
    keeps_turn: Final[bool]
    def lost_turns(self, before: int) -> int: ...
    def open(self, now_ns: int) -> None: ...
    def on_sent(self, master: int) -> None: ...
    def on_vote(
        self, master: int, vote: int, detail: object, is_definite: bool, now_ns: int
    ) -> None: ...
    def on_deadline(self, now_ns: int) -> None: ...
    def confirm(self, now_ns: int) -> None: ...

def is_foreign(text: str) -> bool: ...

@final
class ServerInfo:
    def __init__(self, info: object) -> None: ...
    fields: Final[dict[str, str]]
    run_id: Final[str | None]
    uptime_s: Final[int | None]
    version: Final[str | None]
    role: Final[str | None]
    mode: Final[str | None]
    policy: Final[str | None]
    keeps_promotion: bool
    needed: Final[int]
    lag_s: Final[int]
    def identity(self, is_endpoint: bool) -> str | None: ...
    def goes_on(self, before: str | None) -> bool: ...
    def refusal(self) -> str | None: ...
    def warnings(self) -> list[str]: ...

@final
class ServerClock:
    step_ns: Final[int]
    def on_time(self, reply: object, sent_ns: int, now_ns: int) -> bool: ...

def failover_of(
    config: object, server_info: ServerInfo, replicas: int = 0
) -> tuple[int, str | None]: ...

@final
class Counters:
    rounds: Final[int]
    rolled_back: Final[int]
    late_replies: Final[int]
    repeated_scripts: Final[int]
    connects: Final[int]
    losses: Final[int]
    releases_dropped: Final[int]
    waits: Final[int]
    turns_told: Final[int]
    turns_missed: Final[int]
    handed_over: Final[int]
    handed_on: Final[int]
    lingered: Final[int]
    fences_written: Final[int]
    operations: Final[tuple[tuple[int, int, int, int], ...]]

@final
class Routes:
    most: Final[int]
    is_stale: bool
    addresses: Final[list[tuple[bytes, int]]]
    def __init__(self, seeds: Sequence[tuple[bytes, int]], most: int = ...) -> None: ...
    known: Final[set[bytes]]
    def take_map(
        self, reply: object, host: bytes, node_id: bytes | None = None
    ) -> str | None: ...
    def on_redirect(self, error: str, host: bytes) -> tuple[bytes, int] | None: ...
    def address_of(self, key: bytes) -> tuple[bytes, int] | None: ...
    def tag_of(self, address: tuple[bytes, int]) -> bytes: ...

@final
class IdleKeys:
    watch: Callable[[Engine, Any], Any] | None

@final
class Engine:
    has_slots: bool
    idle: Final[IdleKeys]
    electorate: Final[Electorate]
    cohort_ns: int
    wall_offset_ns: int
    def __init__(
        self,
        endpoints: Sequence[object],
        scripts: Scripts,
        connect_timeout_ns: int,
        tls_contexts: tuple[Any, ...] = (),
        max_ttl_ns: int = 0,
        client_name: bytes = b"fastredlock",
        jitter_seed: int = 0,
        tokens_are_given: bool = False,
        servers_may_be_same: bool = False,
        preparers: tuple[Any, ...] = (),
        key_prefix: bytes | None = None,
        key_error: type[Exception] = ...,
        electorate: Electorate | None = None,
        lists: Lists | None = None,
    ) -> None: ...
    foreign: Any
    counters: Final[Counters]
    is_closed: Final[bool]
    generation: Final[int]
    round_trip_ns: Final[int]
    shortest_round_trip_ns: Final[int]
    warnings: Final[list[tuple[str, str]]]
    unlogged: Final[list[tuple[int, str, str]]]
    def take_unlogged(self) -> list[tuple[int, str, str]]: ...
    def may_wait_in_turn(self, keys: _Keys, now_ns: int) -> bool: ...
    def is_contended(self, keys: _Keys, now_ns: int) -> bool: ...
    def has_no_slot(self, permits: Permits, now_ns: int) -> bool: ...
    def may_pass(self, round: Round, until_ns: int) -> bool: ...
    def new_inspections(self, permits: Permits, terms: Terms) -> Batch: ...
    # One of each master; `_reports` names what they hold.
    def health(self) -> tuple[tuple[Any, ...], ...]: ...
    figures: Final[tuple[tuple[Any, ...], ...]]
    master_names: Final[tuple[str, ...]]
    is_awaited: Final[bool]
    states: Final[tuple[tuple[MasterState, str], ...]]
    faults: Final[tuple[tuple[int, str], ...]]
    def new_round(
        self,
        operation: int,
        keys: _Keys,
        token: bytes,
        terms: Terms,
        attempt: int = 0,
        began_ns: int = 0,
        left_ns: int = 0,
    ) -> Round: ...
    next_ns: Final[int]
    def new_inspection(self, round: Round) -> Round: ...
    def new_connecting(self) -> Round: ...
    def new_ping(self, key: bytes, terms: Terms, left_ns: int) -> Round: ...
    def new_extension(self, lease: Round, terms: Terms) -> Round: ...
    def new_release(self, lease: Round, terms: Terms) -> Round: ...
    def new_adopted(
        self,
        keys: bytes | tuple[bytes, ...],
        token: bytes,
        terms: Terms,
        fence: int = 0,
        now_ns: int = 0,
    ) -> Round: ...

@final
class Batch:
    def __init__(self, rounds: list[Round]) -> None: ...
    rounds: Final[list[Round]]
    is_finished: Final[bool]
    is_withdrawn: Final[bool]
    failure: Final[Round | None]

def new_acquires(
    engine: Engine,
    keys: list[bytes] | list[Shared],
    terms: Terms,
    tokens: list[bytes],
    began_ns: int = 0,
) -> Batch: ...
def blocking_run(engine: Engine, work: _Work) -> int: ...
def blocking_abandon(engine: Engine, work: _Work) -> None: ...
def blocking_watch(engine: Engine) -> None: ...
def thread_begin(run: Callable[[], object]) -> RuntimeError | None: ...
def thread_serve(
    baton: LockType, waker: LockType, run: Callable[[], object]
) -> RuntimeError | None: ...
def blocking_close(engine: Engine, timeout_ns: int) -> None: ...
def release_in_c(method: _Method) -> _Method: ...
def releases_in_c(each_type: type[Any]) -> Callable[[_Method], _Method]: ...
def acquire_in_c(
    lease_type: type[Any], encode: Any, wanted: Any
) -> Callable[[_Method], _Method]: ...

lease_exit: Any
lock_exits: Any

def guard_close(method: _Method) -> _Method: ...
def enter(self: _T) -> Any: ...
def calling_thread() -> object: ...
def refuse_eventlet() -> None: ...
def running_loop() -> object: ...

@disjoint_base
class LockFields(Registered):
    _entries: Final[list[Any]]  # the last one last

@disjoint_base
class BlockExit: ...

def lock_enter(self: LockFields) -> Any: ...
def lock_enter_awaited(self: LockFields) -> Coroutine[Any, Any, Any]: ...
def joining(lease: LeaseFields, lock: LockFields, at_exit: BlockExit | None) -> Any: ...
def by_hand_take_events(
    engine: Engine,
    arrivals: list[tuple[int, bool, bytes, str]],
    quiet: int,
    now_ns: int,
) -> None: ...
def by_hand_engine(engine: Engine) -> list[int]: ...
def by_hand_submit(engine: Engine, work: _Work, now_ns: int) -> None: ...
def by_hand_hand_on(engine: Engine, work: _Work, now_ns: int) -> Round | None: ...
def by_hand_return(engine: Engine, work: _Work, now_ns: int) -> None: ...
def by_hand_all_outgoing(engine: Engine) -> list[tuple[int, bytes]] | None: ...
def by_hand_begin_close(engine: Engine, now_ns: int) -> None: ...
def by_hand_end_close(engine: Engine, now_ns: int) -> None: ...
def by_hand_withdraw(engine: Engine, work: _Work, now_ns: int) -> None: ...

@disjoint_base  # C layout: nothing else can be a base beside it
class Awaited:
    def __await__(self) -> Generator[Any, None, Any]: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...

@disjoint_base
class AsyncioFuture(Awaited):
    def done(self) -> bool: ...
    def result(self) -> None: ...
    def add_done_callback(self, callback: Any, *, context: Any = None) -> None: ...
    def cancel(self, msg: object = None) -> bool: ...

@final
class RoundFuture(AsyncioFuture):
    def __await__(self) -> Generator[Any, None, int]: ...

@final
class DelayFuture(AsyncioFuture):
    def __call__(self) -> None: ...

@final
class AsyncioDriver:
    def __init__(self, engine: Engine, loop: Any) -> None: ...
    loop: Final[Any]
    def is_here(self) -> bool: ...
    def is_over(self) -> bool: ...
    def caller(self) -> object: ...
    def submit(self, work: _Work) -> RoundFuture: ...
    def sleep(self, seconds: float) -> DelayFuture: ...
    def abandon(self, work: _Work) -> None: ...
    def flush(self) -> None: ...
    def wake(self) -> None: ...
    def awaits_replies(self) -> bool: ...
    def idle_left_ns(self) -> int: ...
    def end_idle_keys(self) -> None: ...
    def refuse(self, timeout_ns: int) -> None: ...
    def is_drained(self) -> bool: ...
    def shut(self) -> None: ...
    def retire(self) -> None: ...
    def leave(self) -> None: ...

@disjoint_base
class ObserverHooks:
    methods: Final[dict[str, Callable[..., Any]]]
    def __init__(self, methods: dict[str, Callable[..., Any]]) -> None: ...
    def notify(self, event: str, *values: object) -> None: ...
    def on_failed(self, error: BaseException) -> None: ...
    def on_extended(self, lease: Any, outcome: object) -> None: ...
    def on_end(self, lease: Any, left_ns: int) -> None: ...
    def begin_kept(self, lease: Any) -> None: ...

@final
class Block(ReferenceType[Any]):
    caller: Final[object]

@disjoint_base
class DriverFields:
    settings: Any
    engine: Engine
    keeper: Any
    observer: Any
    current: Any
    runs_in_core: bool
    entered: Final[dict[bytes, Block]]
    blocks: bool
    def __init__(self, settings: Any, engine: Engine) -> None: ...
    def run(self, work: _Work) -> None: ...
    def caller(self) -> object: ...
    def entered_here(self) -> list[Any]: ...
    def now_ns(self) -> int: ...
    def fork_generation(self) -> int: ...

@disjoint_base
class Registered: ...

def registered(kinds: Any) -> list[Any]: ...

@disjoint_base
class LocksFields(Registered):
    _driver: Any

@disjoint_base
class LeaseFields(Registered):
    resource: Any
    _driver: Any
    _round: Round
    _status: Any
    def __init__(self, driver: Any, resource: Any, round: Round) -> None: ...
    def _new_release(self) -> Round: ...
    _valid_until_ns: Final[int]
    _block: Final[Block | None]

@final
class Tally:
    waits: Final[list[float]]
    holds: Final[list[float]]
    margins: Final[list[float]]
    def __new__(cls, bounds: Sequence[float]) -> Self: ...
    def acquired(self, resource: object, waited: float, attempts: int) -> None: ...
    def margin(self, resource: object, left: float) -> None: ...
    def released(self, resource: object, held: float) -> None: ...
    def add(self, place: int, amount: int) -> None: ...
    def read(self) -> list[int]: ...

def new_leases(
    lease_type: type[_T],
    driver: DriverFields,
    resources: list[Any],
    rounds: list[Round],
) -> list[_T | None]: ...
def set_ends(*statuses: Any) -> None: ...
def begin_releases(
    driver: DriverFields, leases: list[Any]
) -> tuple[list[Round | None], list[int]]: ...
def observe_releases(
    driver: DriverFields, leases: list[Any], left_ns: list[int]
) -> None: ...

@disjoint_base
class ValidityFields(ReferenceType[Any]):
    under_way: Any  # Final[set[object] | None]
    unanswered: Any  # Final[set[Round] | None]
    awaited: Final[int]
    awaited_terms: Any  # Final[Terms], where `awaited` is not 0
    terms: Final[Terms]
    stays_until_ns: int
    until_ns: int
    unknown_until_ns: int
    pace: Any
    due_ns: int
    renewal: Final[Round | None]
    failed: Round | None
    was_kept: bool
    is_lost: bool
    error: Any
    on_lost: Any
    body: Any
    waiters: list[Callable[[], object]] | None
    def __init__(self, lease: LeaseFields) -> None: ...
    valid_until_ns: Final[int]
    is_kept: Final[bool]
    def take_end(self) -> bool: ...
    def begin_tables(self) -> None: ...
    def begin_extension(self, round: Round, extension: object, now_ns: int) -> bool: ...
    def win_extension(self, round: Round, most_ns: int) -> None: ...
    def end_now(self) -> None: ...
    def begin_keeping(self, until_ns: int) -> None: ...
    def begin_renewal(self, round: Round, now_ns: int) -> bool: ...
    def win_renewal(self, round: Round) -> bool: ...
    def let_go(self, renewal: Round | None) -> None: ...
    def end_renewals(self) -> None: ...

def set_first(owner: object, name: str, new: _T) -> _T: ...
def is_answered(round: Round) -> bool: ...

@disjoint_base
class Call(Awaited, Coroutine[Any, Any, Any]):
    __name__: str
    __qualname__: str
    cr_running: Final[bool]
    def run(self) -> Any: ...
    def send(self, value: Any) -> Any: ...
    def throw(
        self, error_type: Any, value: Any = None, traceback: Any = None
    ) -> Any: ...
    def close(self) -> None: ...

@final
class AcquireCall(Call):
    def __init__(
        self,
        driver: Any,
        lease_type: type[Any],
        resource: Any,
        ttl: float | None,
        timeout: float | None,
        encode: Callable[[Any], _Keys],
        keep: Any = None,
        lock: LockFields | None = None,
        at_exit: BlockExit | None = None,
    ) -> None: ...
    resource: Final[Any]
    encode: Final[Callable[[Any], _Keys]]
    ttl: Final[float | None]
    timeout: Final[float | None]
    began_ns: Final[int]
    round: Final[Round | None]

def check_acquire(
    driver: DriverFields,
    resource: Any,
    ttl: float | Terms | None,
    timeout: float | None,
    encode: Callable[[Any], _Keys],
) -> None: ...

DEFAULT_RESOURCE: Final[Any]

def undo(self: Call) -> None: ...

@final
class ExtendCall(Call):
    def __init__(
        self, lease: LeaseFields, ttl: float | None, is_by_hand: bool = True
    ) -> None: ...

@final
class EachCall(Call):
    def __init__(
        self, driver: DriverFields, called: str, each_type: type[Any], *given: Any
    ) -> None: ...
