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


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_greenlets_when_the_program_is_patched_then_lock_and_others_run(
    library: str,
) -> None:
    """Seen: no name was resolved, a silent server froze all, LocalMasters failed; and
    a leader that a fork had copied would read its parent's replies."""
    module = "tests.support.greenlet_programs"  # an import of it would patch us
    done = run_to_its_end(module, library, within=60)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_signal_handler_when_a_library_has_patched_nothing_then_takes_locks(
    library: str,
) -> None:
    """Seen: it waited for ever, for the lock of its own thread's call."""
    module = {"gevent": "gevent.monkey", "eventlet": "eventlet.patcher"}[library]
    done = run_to_its_end("tests.support.unpatched_program", module, within=PATIENCE)
    assert done.returncode == 0, done.stderr[-3000:]
