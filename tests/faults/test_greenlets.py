"""Programs that gevent or eventlet has patched; each is a process of its own."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.support.processes import run_to_its_end
from tests.support.waiting import PATIENCE

LIBRARIES = [
    pytest.param(
        name, marks=pytest.mark.skipif(find_spec(name) is None, reason="not installed")
    )
    for name in ("gevent", "eventlet")
]


def run(library: str, program: str) -> None:
    """Run one of `greenlets`; it succeeds."""
    module = "tests.support.greenlet_programs"  # an import of it would patch us
    done = run_to_its_end(module, library, program, within=2 * PATIENCE)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    "program",
    [
        "use_all",
        "exclude",
        "stay_awake",
        "sleep_in_between",
        "give_up",
        "close_while_the_leader_is_killed",
        "release_in_the_hub",
        "share_a_lock_object",
        "run_threads_too",
        "use_compat",
        "keep_leases",
    ],
)
def test_greenlets_when_the_program_is_patched_then_lock_and_others_run(
    library: str, program: str
) -> None:
    """Seen: no name was resolved, a silent server froze all, LocalMasters failed."""
    run(library, program)


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES[:1])  # a child of eventlet has no hub
def test_greenlets_when_copied_by_a_fork_then_leave_the_parents_connections(
    library: str,
) -> None:
    """Seen: a copied leader would read its parent's replies."""
    run(library, "fork_while_waiting")


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_signal_handler_when_a_library_has_patched_nothing_then_takes_locks(
    library: str,
) -> None:
    """Seen: it waited for ever, for the lock of its own thread's call."""
    module = {"gevent": "gevent.monkey", "eventlet": "eventlet.patcher"}[library]
    done = run_to_its_end("tests.support.unpatched_program", module, within=PATIENCE)
    assert done.returncode == 0, done.stderr[-3000:]
