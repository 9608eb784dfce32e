"""The whole suite runs in several processes by itself: a hook of pytest.

Only where `pytest` is called without files: one file is done sooner in one process.
Many tests wait for servers most of their time: one process more than cores. `-n`
decides otherwise. A process that crashes, or is ended (faulthandler_timeout), is not
started anew: the others would wait for its share for ever.
"""

from __future__ import annotations

import os

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Let xdist distribute the files, where nobody said how."""
    option = config.option
    if (
        config.args_source is pytest.Config.ArgsSource.TESTPATHS
        and config.getoption("numprocesses", 0) is None  # xdist is here, and not told
        and not config.getoption("benchmark_only", False)
        and not option.collectonly
        and not option.usepdb
    ):
        option.numprocesses = (os.cpu_count() or 1) + 1
        option.dist = "loadfile"
        option.loadscopereorder = False  # quick files first, as testpaths has them
        option.maxworkerrestart = "0"
