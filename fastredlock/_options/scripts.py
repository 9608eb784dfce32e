"""The Lua scripts, from the files beside this one, which the first client takes apart.

Each file is valid Lua 5.1. A function is a script: what a server gets is its body, two
columns to the left. A local function is a part of scripts: `--@ name` in a body is the
body of that function. Here ACQUIRE_ALL is the text of `acquire_all`, ACQUIRE_ALL_SHA1
its SHA1, which no server needs to compute.
"""

from __future__ import annotations

import os
from functools import cache, lru_cache
from typing import Any

from .._core import Script

try:  # what hashlib itself has where there is no OpenSSL, which takes 4 ms to load
    from _sha1 import sha1  # type: ignore[import-not-found]
except ImportError:
    from hashlib import sha1

# Read with this module, and by what has loaded it: so they are those of its version,
# need no descriptor later, and may be in an archive.
LOADER: Any = __spec__.loader
FOLDER = os.path.dirname(__file__)
FILES: dict[str, bytes] = {
    name: LOADER.get_data(os.path.join(FOLDER, f"{name}.lua"))
    for name in ("locks", "queue", "fences")
}
TAGGED = b"""local function tagged(name)
  local tag = string.match(name, "{(.-)}")
  if tag and tag ~= "" then return name end
  return "{" .. name .. "}"
end
"""
# Before a script: it changes nothing, and answers as if it had.
WITHOUT_SET = b"""local redis = setmetatable({call = function(name, ...)
  if name ~= "set" then return redis.call(name, ...) end
end}, {__index = redis})
"""
PROBE_CALL = b"return 1"  # for a release script of others, whose commands are not known


@cache
def _functions() -> dict[str, tuple[str, bytes]]:
    """Return the file of each script, "" of a part, and its body."""
    functions = {}
    for file, content in FILES.items():
        # Not by a regular expression: one takes 1 ms to compile.
        for text in content.split(b"\nend\n"):
            for head, its_file in ((b"\nfunction ", file), (b"\nlocal function ", "")):
                _, is_found, function = text.partition(head)
                if is_found:
                    name, _, body = function.partition(b"()")
                    body = body.replace(b"\n  ", b"\n").removeprefix(b"\n")
                    functions[name.decode()] = its_file, body
    return functions


@cache
def source_of(name: str) -> bytes:
    """Return the text of a script or of a part; KeyError where there is none."""
    source, *rest = _functions()[name][1].split(b"--@ ")
    for each in rest:
        part, line_end, text = each.partition(b"\n")
        source += source_of(part.decode()) + line_end + text
    return source


@lru_cache(16)  # prefixes: there may be one for each tenant
def scripts_of(
    file: str, prefix: bytes = b"", in_cluster: bool = False
) -> dict[str, Script]:
    """Return the scripts of a file, by the names of protocol/commands.pyx."""
    found = {}
    for name, (its_file, _) in _functions().items():
        if its_file == file:
            source = source_of(name)
            source = with_tags(source) if in_cluster else source
            found[name.removeprefix("fenced_")] = hashed(with_prefix(source, prefix))
    return found


def with_tags(source: bytes) -> bytes:
    """Return a script whose names of its own are in the hash slot of their resource."""
    import re  # where there is a cluster alone

    own = rb'("fastredlock:(?:queue|turn|fence|broken):" \.\. )(KEYS\[1\]|\w+)'
    tagged = re.sub(own, rb"\1tagged(\2)", source)
    return tagged if tagged == source else TAGGED + tagged


@lru_cache(64)  # a server in memory asks for it at each script that it loads
def hashed(source: bytes) -> Script:
    return Script(source, sha1(source, usedforsecurity=False).hexdigest().encode())


def with_prefix(source: bytes, prefix: bytes) -> bytes:
    """Return a script with the prefix before all names of its own.

    The keys that it is given have it already.
    """
    quoted = b"".join(b"\\%03d" % byte for byte in prefix)
    return source.replace(b'"fastredlock:', b'"' + quoted + b"fastredlock:")


def __getattr__(name: str) -> bytes:
    try:
        source = source_of(name.removesuffix("_SHA1").lower())
    except KeyError:
        raise AttributeError(f"there is no script {name}") from None
    return hashed(source).sha1 if name.endswith("_SHA1") else source
