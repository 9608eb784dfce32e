"""The model server against real ones: replies, messages and keys, by one clock.

Random sequences of all that we send. The model and a real server (`clocked_server`) are
asked the same at the same time, by six processes, five of which listen, each on its own
connection; what is under each name is compared after each four commands.
"""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable, Iterator
from hashlib import sha1
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hiredis
import pytest

from fastredlock._options import scripts
from fastredlock.testing._model import Lua, Model, ReplyError
from tests.sim.clocked_server import EPOCH_US, Client, ClockedServer, encoded
from tests.support.local_servers import PROGRAMS

from .scenarios import Stage
from .world import S

Words = tuple[bytes, ...]

PREFIXES = (b"", b'of "us":')
PROCESSES = (b"p1", b"p2", b"p3", b"p4", b"p5", b"gone")
LISTENING = (*PROCESSES[:5], b"p1r")
TOKENS = (
    b"1" * 27,
    b"2" * 27 + b"@p",
)  # in the form of ours, by which readers are known
LIFE = b"90000000"
PERMITS = (b"1", b"2", b"3")  # of a semaphore; its processes need not agree
LONG = b"=" * 262_144, b"=" * 262_145  # the longest token that INSPECT returns
# On a grid of 10 ms, as the times of waiting: so that tickets are equal at times.
STEPS_US = (10_000, 20_000, 30_000, 60_000, 400_000, 11_000_000, 70_000_000)
OFTEN = (16, 8, 8, 4, 2, 1, 1)
OOM = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
NO_REPLICAS = b"-NOREPLICAS Not enough good replicas to write.\r\n"
REFUSALS = (
    (b"maxmemory", b"1", "memory_refused", OOM),
    (b"min-replicas-to-write", b"1", "writes_refused", NO_REPLICAS),
)


class Draw:
    """Draw what is asked: under one prefix, mostly about one of three locks."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.prefix = PREFIXES[seed % 2]
        self.locks = [self.prefix + name for name in (b"a", b"b", b"c")]
        self.semaphore = self.prefix + b"a#"
        self.slots = [self.semaphore + number for number in (b"0", b"1", b"2")]

    def names(self) -> list[bytes]:
        own = [
            self.prefix + b"fastredlock:" + kind + lock
            for kind in (b"queue:", b"turn:", b"fence:")
            for lock in (*self.locks, self.semaphore)
        ]
        own.append(self.prefix + b"fastredlock:fence:" + self.slots[0])
        return [*self.locks, *self.slots, *own, b"marker", b"quarantine"]

    def script(self, source: bytes, keys: list[bytes], *arguments: bytes) -> Words:
        """Send a script by its source, or its hash, which may be unknown."""
        source = scripts.with_prefix(source, self.prefix)
        how = (b"EVAL", source)
        if self.random.random() < 0.3:
            how = (b"EVALSHA", scripts.hashed(source).sha1)
        return (*how, b"%d" % len(keys), *keys, *arguments)

    def step_us(self) -> int:
        (step_us,) = self.random.choices(STEPS_US, OFTEN)
        return step_us

    def commands(self, *more: Callable[[], list[Words]]) -> Iterator[Words]:
        choice = self.random.choice
        kinds = (self.of_locks, self.of_queues, self.of_queues, self.of_queues)
        kinds = (*kinds, self.of_queues, self.of_numbers, self.of_servers)
        kinds = (*kinds, self.of_slots, self.of_slots, self.of_slots, self.of_slots)
        kinds = (*kinds, *more)
        while True:
            yield choice(choice(kinds)())

    def of_locks(self) -> list[Words]:
        draw, script = self.random, self.script
        key, token = draw.choice(self.locks), draw.choice(TOKENS)
        ttl = draw.choice((b"90", b"5000", b"60000"))
        some = draw.sample(self.locks, draw.choice((1, 1, 2, 3)))
        return [
            (b"SET", key, token, b"NX", b"PX", ttl),
            (b"SET", key, token, b"NX"),
            (b"SET", key, token, b"IFEQ", draw.choice(TOKENS), b"PX", ttl),
            (b"DELIFEQ", key, token),
            script(scripts.RELEASE, [key], token),
            script(scripts.EXTEND, [key], token, ttl),
            script(scripts.INSPECT, [key], b"-"),
            script(scripts.ACQUIRE_ALL, some, token, ttl),
            script(scripts.ACQUIRE_AGAIN, some, token, ttl),
            script(scripts.ACQUIRE_AGAIN, [key], token),
            script(scripts.EXTEND_ALL, some, token, ttl),
            script(scripts.RELEASE_ALL, some, token),
        ]

    def of_queues(self) -> list[Words]:
        draw, script = self.random, self.script
        key, token = draw.choices(self.locks, (6, 2, 1))[0], draw.choice(TOKENS)
        process = draw.choice(PROCESSES)
        waited, later = (b"%d" % draw.randrange(0, 200_000, 10_000) for _ in range(2))
        ttl = draw.choice((b"90", b"5000", b"0"))
        some = draw.sample(self.locks, draw.randrange(2, 4))
        ask, take = scripts.ASK_TURN, scripts.TAKE_TURN
        return [
            script(ask, [key], process, waited, b"0"),
            script(ask, [key], process, waited, draw.choice((b"0", b"0", b"4"))),
            *[script(ask, [key], process, waited, draw.choice((b"1", b"2")))] * 3,
            script(ask, [key], process, waited, b"3"),
            script(take, [key], token, ttl, process, waited, b"-1"),
            script(take, [key], token, ttl, process, waited, later),
            script(scripts.RELEASE_AND_NOTIFY, [key], token),
            script(
                scripts.RELEASE_AND_NOTIFY, [key], token, draw.choice((b"", process))
            ),
            script(scripts.RELEASE_ALL, some, token),
            script(scripts.LEAVE_QUEUE, [key], process),
        ]

    def of_readers(self) -> list[Words]:
        draw, script = self.random, self.script
        key, token = draw.choice(self.locks), draw.choice(TOKENS)
        process, ttl = draw.choice(PROCESSES) + b"r", draw.choice((b"90", b"5000"))
        waited, later = (b"%d" % draw.randrange(0, 200_000, 10_000) for _ in range(2))
        ask, take = scripts.ASK_TURN, scripts.TAKE_TURN_SHARED
        told = scripts.RELEASE_SHARED_AND_NOTIFY
        later = draw.choice((later, b"-1"))
        return [
            *[script(scripts.ACQUIRE_SHARED, [key], token, ttl)] * 2,
            script(scripts.EXTEND_SHARED, [key], token, ttl),
            script(scripts.RELEASE_SHARED, [key], token),
            script(scripts.INSPECT, [key], b"-"),
            script(ask, [key], process, waited, draw.choice((b"0", b"1", b"2", b"3"))),
            script(take, [key], token, ttl, process, waited, later),
            script(take, [key], token, ttl, b"", b"0", b"-1"),
            script(told, [key], token),
            script(told, [key], token, draw.choice((b"", process))),
        ]

    def of_slots(self) -> list[Words]:
        """Draw commands of a semaphore: of its slots, and of its queue."""
        draw, script, name = self.random, self.script, self.semaphore
        slot, token, permits = map(draw.choice, (self.slots, TOKENS, PERMITS))
        process, ttl = draw.choice(PROCESSES), draw.choice((b"90", b"5000", b"0"))
        waited, later = (b"%d" % draw.randrange(0, 200_000, 10_000) for _ in range(2))
        later = draw.choice((later, b"-1"))
        ask, take = scripts.ASK_TURN, scripts.TAKE_TURN
        told = scripts.RELEASE_AND_NOTIFY
        how = draw.choice((b"1", b"1", b"2", b"3", b"4")) + b"#" + permits
        take_turn = token, ttl, process, waited, later, permits
        return [
            (b"SET", slot, token, b"NX", b"PX", b"5000"),
            (b"SET", slot, token, b"NX"),
            *[script(ask, [name], process, waited, b"0#" + permits)] * 2,
            *[script(ask, [name], process, waited, how)] * 3,
            *[script(take, [slot, name], *take_turn)] * 3,
            self.script(
                scripts.FENCED_TAKE_TURN, [slot, name], *take_turn, b"50", LIFE
            ),
            script(told, [slot, name], token),
            *[script(told, [slot, name], token, draw.choice((b"", process)))] * 2,
            script(scripts.LEAVE_QUEUE, [name], process),
            script(scripts.LOOK, [name], permits),
        ]

    def of_numbers(self) -> list[Words]:
        draw = self.random
        key, token = draw.choice(self.locks), draw.choice(TOKENS)
        number = draw.choice((b"5", b"50", b"150", b"9007199254740990"))
        ttl, process = draw.choice((b"90", b"5000", b"0")), draw.choice(PROCESSES)
        some = draw.sample(self.locks, draw.randrange(1, 4))

        def script(name: str, keys: list[bytes], *arguments: bytes) -> Words:
            return self.script(getattr(scripts, name), keys, *arguments, number, LIFE)

        return [
            script("FENCED_ACQUIRE_ALL", some, token, ttl),
            script("FENCED_ACQUIRE_AGAIN", some, token, ttl),
            script("FENCED_TAKE_TURN", [key], token, ttl, process, b"0", b"-1"),
            script("FENCED_TAKE_TURN", [key], token, ttl, process, b"0", b"7000"),
            *[script("WRITE_FENCE", [key], token)] * 3,
            script("WRITE_FENCE", some, token),
        ]

    def of_servers(self) -> list[Words]:
        """Draw what else a client sends; and keys of others in the place of ours."""
        draw, names = self.random, self.names()
        span, how = b"%d" % draw.randrange(1000, 9000), draw.choice((b"any", b"exact"))
        marked = (draw.choice((b"m1", b"m2")), span, how)
        text = b"m%d:%d:" % (draw.randrange(2), draw.randrange(3))
        text += draw.choice((b"", b"p1", b"p2"))
        lineage = text, span, draw.choice((b"-1", b"0", b"1"))
        source = scripts.with_prefix(scripts.ASK_TURN, self.prefix)
        return [
            (b"TIME",),
            (b"SELECT", b"0"),
            (b"CLIENT", b"SETNAME", b"ours"),
            (b"CLIENT", b"KILL", b"ID", b"123456789"),
            (b"EXISTS", *draw.sample(names, 3)),
            (b"SCRIPT", b"LOAD", source),
            self.script(scripts.PROBE, []),
            self.script(scripts.PROBE_CALL, []),
            self.script(scripts.FENCED_PROBE, []),
            *[self.script(scripts.MARKER, [b"marker", b"quarantine"], *marked)] * 3,
            *[self.script(scripts.MARKER, [b"marker", b"quarantine"], *lineage)] * 3,
            (b"SET", draw.choice(names), b"another's", b"NX", b"PX", b"3000"),
            (b"SET", draw.choice(names), b"11\n12", b"NX"),
            (b"SET", draw.choice(names), draw.choice(LONG), b"NX", b"PX", b"90"),
            *[(b"DEL", draw.choice(names))] * 3,
            *[(b"DEL", self.prefix + b"fastredlock:queue:" + self.locks[0])] * 3,
        ]


class Pair:
    """A real server and the model, asked the same."""

    def __init__(self, server: ClockedServer, prefix: bytes) -> None:
        self.real, self.model = server, Model()
        self.clients = [Client(server.url) for _ in PROCESSES]
        (known, _) = self.clients[0].ask(
            (b"COMMAND", b"INFO", b"DELIFEQ"), (b"FLUSHALL",)
        )
        self.model.native = b"DELIFEQ" if known[0] else b""
        self.clients[0].ask((b"SCRIPT", b"FLUSH"))
        self.sent: dict[Client, list[Any]] = {each: [] for each in self.clients}
        for client in self.clients:
            self.model.execute([b"HELLO", b"3"], client, server.now_us)
        for client, process in zip(self.clients, LISTENING, strict=False):
            channel = prefix + b"fastredlock:waiter:" + process
            real, model = self.ask(client, (b"SUBSCRIBE", channel))
            assert real == model

    def ask(self, client: Client, words: Words) -> tuple[Any, Any]:
        """Return both replies, of an error the code."""
        (reply,) = client.ask(words)
        said = self.execute(client, words)
        for receiver, push in self.model.pushes.take():
            self.sent[receiver].append(parsed(push))
        return code_of(reply), code_of(parsed(said))

    def execute(self, client: Client, words: Words) -> bytes:
        """Ask the model; it has no DEL, which stands for other clients."""
        if words[0] != b"DEL":
            return self.model.execute([*words], client, self.real.now_us)
        keys = self.model.keys
        keys.now_us, keys.has_written = self.real.now_us, False
        try:
            return b":%d\r\n" % keys.delete(words[1])
        except ReplyError as error:
            return error.reply

    def keys(self, names: list[bytes]) -> tuple[list[Any], list[Any]]:
        """Return what is under these names on both, with the ttl."""
        keys, there, here = self.model.keys, list[Any](), list[Any]()
        for name in names:
            asked = (b"PTTL", name), (b"GET", name), (b"ZRANGE", name, b"0", b"-1")
            there += map(code_of, self.clients[0].ask(*asked))
            here.append(keys.pttl(name))
            for command, *words in ((keys.get,), (keys.zrange, 0, -1)):
                try:
                    here.append(command(name, *words))
                except ReplyError as error:
                    here.append(code_of(parsed(error.reply)))
        return there, here

    def refuse(self, draw: random.Random) -> None:
        """Have both refuse writes from now on, for one reason or for none."""
        chosen = draw.choice((*REFUSALS, None))
        for each in REFUSALS:
            name, value, attribute, reply = each
            is_on = each is chosen
            self.clients[0].ask((b"CONFIG", b"SET", name, value if is_on else b"0"))
            setattr(self.model.keys, attribute, reply if is_on else b"")

    def close(self) -> None:
        for name, *_ in REFUSALS:
            self.clients[0].ask((b"CONFIG", b"SET", name, b"0"))
        for client in self.clients:
            client.close()


def parsed(reply: bytes) -> Any:
    reader = hiredis.Reader()
    reader.feed(reply)
    return reader.gets()


def code_of(reply: Any) -> Any:
    """Keep of an error its code: Redis and Valkey word the rest differently."""
    is_error = isinstance(reply, hiredis.ReplyError)
    return str(reply).split()[0] if is_error else reply


@pytest.fixture(scope="module", params=PROGRAMS)
def clocked_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClockedServer]:
    server = ClockedServer(request.param, tmp_path_factory.mktemp("clock"))
    yield server
    server.close()


@pytest.fixture
def make_pair(clocked_server: ClockedServer) -> Iterator[Callable[[bytes], Pair]]:
    pairs: list[Pair] = []

    def make(prefix: bytes) -> Pair:
        pairs.append(Pair(clocked_server, prefix))
        return pairs[-1]

    yield make
    for pair in pairs:
        pair.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_model_when_asked_what_we_ask_then_answers_as_a_real_server(
    make_pair: Callable[[bytes], Pair], seed: int
) -> None:
    draw = Draw(seed)
    pair = make_pair(draw.prefix)
    names, done = draw.names(), list[Words]()
    commands = draw.commands(*[draw.of_readers] * 3)
    for number, words in zip(range(1000), commands, strict=False):
        pair.real.set_time(pair.real.now_us + draw.step_us())
        if seed >= 4 and number % 20 == 0:
            pair.refuse(draw.random)
        real, model = pair.ask(draw.random.choice(pair.clients), words)
        done = [*done[-5:], words]
        assert model == real, (number, done)
        if number % 4 == 0:
            there, here = pair.keys(names)
            assert here == there, (number, done)
        if number % 20 == 0:
            for client in pair.clients:
                assert pair.sent[client] == client.pushes(), (number, done)
                pair.sent[client] = []


# Of replies, messages and keys. They were those of a second form of all scripts, in
# Python, before the model ran the Lua: what changes one has to be meant. The seeds are
# such that a mutant of TAKE_TURN shows.
RECORDED = {0: "3078e7152bc2", 1: "678007ba3eef", 7: "471c9b81733c", 47: "304775d61ec4"}


@pytest.mark.parametrize("seed", RECORDED)
def test_scripts_when_asked_what_we_ask_then_do_what_they_did(seed: int) -> None:
    draw, model, now_us, seen = Draw(seed), Model(), EPOCH_US, sha1()
    for process in LISTENING:
        channel = draw.prefix + b"fastredlock:waiter:" + process
        model.execute([b"SUBSCRIBE", channel], process, now_us)
    for words in islice(draw.commands(), 1500):
        now_us += draw.step_us()
        if words[0] == b"DEL":
            model.keys.drop(words[1])
        seen.update(model.execute([*words], draw.random.choice(PROCESSES), now_us))
        seen.update(repr(model.pushes.take()).encode())
        keys = [(key, getattr(v, "order", v)) for key, v in model.keys.items()]
        seen.update(repr(sorted(keys)).encode())
    assert seen.hexdigest()[:12] == RECORDED[seed]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((b"EVALSHA", b"0" * 40, b"0"), b"-NOSCRIPT"),
        ((b"EVAL", b"return redis.call('KEYS', '*')", b"0"), b"-ERR unknown command"),
        ((b"GET", b"k"), b"-ERR unknown command"),
    ],
)
def test_model_when_asked_what_we_never_ask_then_replies_with_an_error(
    words: Words, code: bytes
) -> None:
    assert Model().execute([*words], None, EPOCH_US).startswith(code)


def test_client_when_killed_then_listens_no_more_and_has_no_id() -> None:
    model, client = Model(), object()
    hello = parsed(model.execute([b"HELLO", b"3"], client, EPOCH_US))
    model.execute([b"SUBSCRIBE", b"channel"], client, EPOCH_US)
    kill = [b"CLIENT", b"KILL", b"ID", b"%d" % hello[b"id"]]
    assert model.execute(kill, None, EPOCH_US) == b":1\r\n"
    assert model.killed == {client}
    assert model.pushes.publish(b"channel", b"text") == 0
    assert model.execute(kill, None, EPOCH_US) == b":0\r\n"


@pytest.mark.parametrize("module", ["judge", "question", "orphans", "waiters"])
def test_judge_when_it_looks_then_asks_nothing_of_the_model(module: str) -> None:
    source = Path(__file__).with_name(f"{module}.py").read_text()
    assert "fastredlock.testing" not in source
    assert ".model" not in source


def test_server_when_it_comes_back_then_gets_nothing_of_an_old_connection() -> None:
    # Issue 11, F: seeds 5854, 6268 and 112764 fed the rest of a command to the parser.
    stage = Stage(1)
    a = stage.process()
    stage.take(a, "A")
    connection = a.process.connections[0]
    assert connection is not None
    connection.path.is_slicing = True
    connection.send(encoded((b"TIME",)))
    connection.cut(1 << 20, 0)  # reset, but all that is under way still arrives
    answered = connection.answered
    stage.restart(0)
    stage.world.run(stage.world.now_ns + S)
    assert connection.answered == answered


def test_model_is_freed_when_a_connection_that_holds_it_listens() -> None:
    model = Model()
    listener = SimpleNamespace(model=model)
    model.execute([b"SUBSCRIBE", b"channel"], listener, 0)
    model.execute([b"EVAL", b"return 1", b"0"], listener, 0)
    is_alive = weakref.ref(model)
    del model, listener
    gc.collect()
    assert is_alive() is None


def test_ends_of_readers_when_the_clock_runs_on_in_a_script_then_stay() -> None:
    """As of Redis 7.0, whose script may be stopped between two of its commands."""
    model, tokens = Model(), (b"1" * 27 + b"@a", b"2" * 27 + b"@b", b"3" * 27 + b"@c")

    def ask(source: bytes, token: bytes, *more: bytes) -> bytes:
        return model.execute([b"EVAL", source, b"1", b"k", token, *more], None, 10**12)

    for token in tokens:
        assert ask(scripts.ACQUIRE_SHARED, token, b"9000") == b":1\r\n"
    pttl, keys = model.keys.pttl, model.keys

    def stopped(key: bytes) -> int:
        commands[b"pttl"] = pttl
        keys.now_us += 5000
        return pttl(key)

    commands: dict[bytes, Any] = {**keys.commands(), b"pttl": stopped}
    model._lua = Lua(commands)
    assert ask(scripts.RELEASE_SHARED, tokens[0]) == b":1\r\n"
    assert keys.zscore(b"k", tokens[1]) == b"1000009000"
