"""Plain `pytest` skips this folder; `pytest --benchmark-only` runs it.

pytest-benchmark's own `--benchmark-skip` cannot be put into `addopts`: together with
`--benchmark-only` it is an error. Its table has few columns here, unless others are
asked for, so that it can be read at 100 columns: time per pair and pairs per second.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_COLUMNS = ["median", "ops", "rounds"]


def pytest_configure(config: pytest.Config) -> None:
    """Choose columns and order of the table, before pytest-benchmark reads them."""
    if config.getoption("benchmark_columns", default=_COLUMNS) is None:
        config.option.benchmark_columns = _COLUMNS
    if config.getoption("benchmark_sort", default=None) == "min":  # its default
        config.option.benchmark_sort = "median"


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_scale_unit(unit: str) -> tuple[str, float]:
    """Show times in µs and speeds in thousands per second, in every table."""
    return ("u", 1e6) if unit == "seconds" else ("K", 1e-3)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Skip what is in this folder unless benchmarks, and only they, are asked for."""
    if config.getoption("benchmark_only", default=False):
        return
    skip = pytest.mark.skip(reason="a benchmark: run with --benchmark-only")
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(skip)
