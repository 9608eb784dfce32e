"""Let the whole suite run in several processes by itself: a hook of pytest.

`pytest` without a file runs as `pytest -n WORKERS --dist loadfile`: most tests wait for
servers and for timers, so two processes share a core. Files are handed out in the order
of `testpaths`. One file is done sooner in one process, and any option that says how to
distribute, or that pytest-xdist cannot serve, leaves the run as it is.

A worker of pytest-xdist reads the same `testpaths` and calls this hook, too: it must
not start workers of its own, which would do the same, without end.
"""

from __future__ import annotations

import os

import pytest

# Of the cores that this process may use. The longest file takes a 16th of all time.
_CORES = (
    len(os.sched_getaffinity(0))
    if hasattr(os, "sched_getaffinity")  # Linux
    else os.cpu_count() or 1
)
WORKERS = min(2 * _CORES, 16)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Set the options of pytest-xdist, before its own hook reads them."""
    if is_worker(config) or not is_whole_suite(config) or is_decided(config):
        return
    option = config.option
    option.numprocesses = WORKERS
    option.dist = "loadfile"
    option.loadscopereorder = False
    # A process that crashes (or is ended: faulthandler_timeout) is not started anew:
    # the others would wait for its share for ever.
    option.maxworkerrestart = "0"


def is_worker(config: pytest.Config) -> bool:
    """Return whether this process is one of those that pytest-xdist has started."""
    return hasattr(config, "workerinput") or "PYTEST_XDIST_WORKER" in os.environ


def is_whole_suite(config: pytest.Config) -> bool:
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS


def is_decided(config: pytest.Config) -> bool:
    """Return whether the options leave no choice: in one process, or how in several."""
    option = config.option
    return (
        not config.pluginmanager.hasplugin("xdist")
        or option.numprocesses is not None
        or bool(option.tx)
        or option.distload
        or any(str(each).startswith("--dist") for each in config.invocation_params.args)
        or any(
            getattr(option, name, False)
            for name in ("collectonly", "usepdb", "trace", "benchmark_only")
        )
    )
