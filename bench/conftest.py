"""Plain `pytest` skips this folder; `pytest --benchmark-only` runs it.

pytest-benchmark's own `--benchmark-skip` cannot be put into `addopts`: together with
`--benchmark-only` it is an error.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent


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
