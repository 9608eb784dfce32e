"""The types of fixtures, and the mark of tests for one driver."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from fastredlock import FastRedlock
from fastredlock._core import is_portable

MakeLocks = Callable[..., FastRedlock]  # fixture make_locks
Raw = Callable[..., redis.Redis]  # fixture raw
Servers = list[redis.Redis]  # fixture servers


# Marks for tests of what one build of the core does.
linux_calls = pytest.mark.skipif(
    is_portable(), reason="the core is built without the calls that only Linux has"
)
portable_calls = pytest.mark.skipif(
    not is_portable(), reason="the core is built with the calls of Linux"
)

# A mark for tests of releases and extensions by script: see fixture scripts_release.
by_script = pytest.mark.usefixtures("scripts_release")

# A mark for tests of what only the blocking driver does.
blocking = pytest.mark.parametrize("driver", ["blocking"], indirect=True)
