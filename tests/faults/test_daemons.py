"""Programs that close the descriptors of a client, and go on with it."""

from __future__ import annotations

import pytest

from tests.support import daemon_programs
from tests.support.fixtures import linux_calls
from tests.support.processes import run_to_its_end

# python-daemon forks twice, then closes; the recipe of Stevens forks, closes, forks;
# under an init, as in a container, python-daemon closes, and does not fork.
ORDERS = ["fork-close", "close", "fork-fork-close", "fork-close-fork", "close-fork"]
# Nothing is written before something is read: by a probe, or by the end of the client.
ORDERS += ["close-rest", "close-drop"]

LOST = "bad file descriptor"


@pytest.mark.slow
@linux_calls  # it opens eventfds and epolls
@pytest.mark.parametrize(
    ("order", "client"),
    [*((order, "blocking") for order in ORDERS), ("fork-close", "awaitable")],
)
def test_daemon_when_it_closed_all_descriptors_then_what_it_opened_is_left_alone(
    urls: list[str], order: str, client: str
) -> None:
    """Seen: lines of a log were executed by the masters, as commands."""
    for first in range(len(daemon_programs.KINDS)):
        done = run_to_its_end(daemon_programs, order, client, f"{first}", *urls)
        # A loss that is met before its call connects again is logged.
        said = [each for each in done.stderr.splitlines() if LOST not in each]
        assert (done.returncode, said) == (0, []), done.stderr[-2000:]
