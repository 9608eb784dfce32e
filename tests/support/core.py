"""The names of the core that the tests use, and the package does not."""

from fastredlock._core import *  # noqa: F403
