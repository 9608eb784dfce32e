"""The README's examples, pasted as they stand, on local masters."""

import re
from pathlib import Path

import pytest

from fastredlock import FastRedlock
from fastredlock.testing import LocalMasters

README = Path(__file__).parents[2] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_when_pasted_then_runs(
    example: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with LocalMasters(3) as masters:
        for written, url in zip((7001, 7002, 7003), masters.urls, strict=True):
            example = example.replace(f"redis://localhost:{written}", url)
        exec(example, {})
        with FastRedlock(masters.urls) as locks:
            assert locks.acquire("orders:42", timeout=0)  # nothing left behind
    assert "ours for" in capsys.readouterr().out
