"""The types of fixtures, and the mark of tests for one driver."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from fastredlock import FastRedlock

MakeLocks = Callable[..., FastRedlock]  # fixture make_locks
Raw = Callable[..., redis.Redis]  # fixture raw


# A mark for tests of what only the blocking driver does.
blocking = pytest.mark.parametrize("driver", ["blocking"], indirect=True)
