"""What the reference of the site is told beside docstrings: an extension of griffe.

The constructor of a FastRedlock has the options of its Settings; what a call returns is
not constructed by users; and what stands behind a field of a class is its text.
"""

from __future__ import annotations

from typing import Any

from griffe import Docstring, Extension

OPTIONS = "_options.settings.Settings.__init__"
LOCKS = "_locking.base.BaseLocks.__init__"
RETURNED = (  # where the constructor of each is written
    "_core.LeaseFields",
    "_locking.leading.Campaign",
    "_locking.lock.BaseLock",
    "_locking.keeping.lost.BaseLost",
)


class Reference(Extension):
    """Change what was read from the source."""

    def on_package(self, *, pkg: Any, **_: Any) -> None:
        """Change the constructors, when all is read."""
        if pkg.name == "fastredlock":
            pkg[LOCKS].parameters = pkg[OPTIONS].parameters
            for name in RETURNED:
                pkg[name].del_member("__init__")

    def on_attribute_instance(self, *, attr: Any, **_: Any) -> None:
        """Take the comment behind a public field of a class."""
        if attr.docstring or not attr.parent.is_class or attr.name.startswith("_"):
            return
        line = attr.filepath.read_text("utf-8").splitlines()[attr.lineno - 1]
        _, found, text = line.partition("  # ")
        if found:
            attr.docstring = Docstring(text[:1].upper() + text[1:] + ".", parent=attr)
