"""A sub-interpreter cannot import the core, which has the state of a process."""

from __future__ import annotations

import subprocess
import sys

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
