"""No call imports a module: a fork beside such an import leaves a child that hangs.

The lock of the module is then held for ever by a thread that the child has not. Files
of an upgrade under a running process, or no free descriptor, end calls there as well.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "support" / "import_program.py"


@pytest.mark.slow
def test_no_public_call_imports_anything_when_clients_are_made(
    urls: list[str],
) -> None:
    """Seen: 8 of 883 forked children whose acquire(timeout=1) never returned."""
    program = subprocess.run(
        [sys.executable, str(PROGRAM), *urls],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (program.stdout.strip(), program.stderr) == ("", "")


# --- in a sub-interpreter -------------------------------------------------------------


CODE = """
import sys
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
import fastredlock
code = f"import sys; sys.path[:] = {sys.path!r}\\n"
code += '''
try:
    import fastredlock
except ImportError as error:
    print(error)
'''
interpreters.run_string(interpreters.create(), code)
"""


def test_import_when_in_a_subinterpreter_then_the_error_names_the_remedy() -> None:
    words = [sys.executable, "-c", CODE]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert "WSGIApplicationGroup" in done.stdout, done
