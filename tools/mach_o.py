"""The symbol table of a library for macOS, as far as `tools.macos` looks at it.

The layout is that of <mach-o/loader.h> and <mach-o/nlist.h>: a header of 32 bytes, load
commands, one of which (LC_SYMTAB) says where symbols of 16 bytes and their names stand.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

MAGIC_64 = 0xFEEDFACF
MACHINES = {0x01000007: "x86_64", 0x0100000C: "aarch64"}  # cpu_type_t
LC_SYMTAB = 2
N_STAB, N_TYPE, N_EXT = 0xE0, 0x0E, 0x01
LOOKED_UP = (0xFE, 0)  # no library is named: DYNAMIC_LOOKUP_ORDINAL; zig writes 0


@dataclass(frozen=True, slots=True)
class Library:
    """What a library takes from others."""

    machine: str
    linked: tuple[str, ...]  # from a library that it names
    looked_up: tuple[str, ...]  # from anywhere in the process


def library_of(path: Path) -> Library:
    """Read a library; raise ValueError where it is none of macOS with 64 bits."""
    data = path.read_bytes()
    magic, cpu, _, _, commands, _, _, _ = struct.unpack_from("<8I", data)
    if magic != MAGIC_64 or cpu not in MACHINES:
        raise ValueError(f"{path} is no library of macOS")
    linked: list[str] = []
    looked_up: list[str] = []
    for name, ordinal in undefined_of(data, commands):
        (looked_up if ordinal in LOOKED_UP else linked).append(name)
    return Library(MACHINES[cpu], tuple(linked), tuple(looked_up))


def undefined_of(data: bytes, commands: int) -> list[tuple[str, int]]:
    """Return each undefined symbol, and the ordinal of its library."""
    symbols_at, count, names_at = symbol_table_of(data, commands)
    found = []
    for i in range(count):
        entry = struct.unpack_from("<IBBHQ", data, symbols_at + 16 * i)
        name_at, kind, _, description, _ = entry
        if kind & N_STAB or kind & N_TYPE or not kind & N_EXT:
            continue
        start = names_at + name_at
        name = data[start : data.index(0, start)].decode()
        found.append((name, description >> 8))
    return found


def symbol_table_of(data: bytes, commands: int) -> tuple[int, int, int]:
    """Return where the symbols are, how many, and where their names are."""
    at = 32
    for _ in range(commands):
        command, size = struct.unpack_from("<2I", data, at)
        if command == LC_SYMTAB:
            symbols_at, count, names_at, _ = struct.unpack_from("<4I", data, at + 8)
            return symbols_at, count, names_at
        at += size
    raise ValueError("no symbol table")
