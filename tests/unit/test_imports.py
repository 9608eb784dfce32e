"""Which module imports which, and what `import fastredlock` costs.

The directions of docs/design.md, read from the source: imports inside functions count,
and so do those for type checkers alone, for a reader has to follow them too.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fastredlock

PACKAGE = Path(fastredlock.__file__).parent
SOURCE = PACKAGE.parent / "src_cython"

# Rooms and files, from the ground up. A module imports what comes before it, and what
# has its own rank; a file that is not named has the rank of its room.
RANKS: tuple[str | tuple[str, ...], ...] = (
    "_core",
    "_steps",
    "_reports",
    "errors",
    "observer",
    "_endpoints",
    "_options",
    *("_locking.validity", "_locking.renewals", "_locking.keeper"),
    *("_locking.blocks", "_locking.attempt", "_locking.wanted"),
    *("_locking.driver", "_locking.loop_driver"),
    *("_locking.lease", "_locking.lock", "_locking.blocking"),
    *("_locking.slots", "_locking.awaitable"),
    *("_locking.each", "_locking.observing", "_locking.locks", "_locking"),
    *("client", "asyncio"),
    "",
    "types",
    "testing",
    *("prometheus", "otel", "compat"),
    ("demo", "_cli"),
    "cli",
    "__main__",
)
PUBLIC = {"", "asyncio", "client", "errors", "observer", "testing", "types"}
# Rooms that the modules on the public names may use as well.
BELOW = {
    "_options",  # masters and texts, as options and for plain connections
    "_reports",  # what is shown, and counted for metrics
    "_steps",  # a body for both faces
    "_core",  # metrics; a child that ends with its parent
}
SMALL = ["errors", "_options.retry", "_reports.log"]
HEAVY = {"asyncio", "ssl", "argparse", "redis", "logging", "inspect", "socket"}


def modules() -> list[str]:
    """List the package's modules; `compat/x.py` is "compat.x"."""
    found = (p.relative_to(PACKAGE).with_suffix("") for p in PACKAGE.rglob("*.py"))
    return sorted(".".join(path.parts) for path in found if path.name != "__init__")


def is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def walk(node: ast.AST, into_functions: bool) -> list[ast.AST]:
    """List the nodes that can run."""
    nodes: list[ast.AST] = []
    for child in ast.iter_child_nodes(node):
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_for_type_checkers(child) or (is_function and not into_functions):
            continue
        nodes += [child, *walk(child, into_functions)]
    return nodes


def imported(
    source: str, package: str, *, into_functions: bool = True, for_types: bool = False
) -> set[str]:
    """List the full names of the modules that a source imports."""
    names: set[str] = set()
    tree = ast.parse(source)
    for node in ast.walk(tree) if for_types else walk(tree, into_functions):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= imported_from(node, package.split("."))
    return names


def imported_from(node: ast.ImportFrom, package: list[str]) -> set[str]:
    above = package[: len(package) - node.level + 1] if node.level else []
    base = ".".join([*above, *filter(None, [node.module])])
    if not base.startswith("fastredlock"):
        return {base}
    # `from . import x` may mean the module x, or a name of the package.
    below = {f"{base}.{alias.name}" for alias in node.names}
    return {name for name in below if is_module(name)} or {base}


def is_module(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists() or path.name == "_core"


def imports_of(module: str, **which: bool) -> set[str]:
    path = PACKAGE.joinpath(*module.split("."))
    package = ["fastredlock", *filter(None, module.split("."))]
    if not path.is_dir():
        package.pop()
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return imported(path.read_text(), ".".join(package), **which)


def own(names: set[str]) -> set[str]:
    """Keep our own modules, without the name of the package."""
    ours = {name for name in names if name.split(".")[0] == "fastredlock"}
    return {name.partition(".")[2] for name in ours}


def is_outer(module: str) -> bool:
    """Tell whether a module stands on the public API: cli, demo, compat, observers."""
    outer = ("cli", "_cli", "__main__", "demo", "compat", "prometheus", "otel")
    return module.split(".")[0] in outer


# ---- the ranks


RANK = {
    room: rank
    for rank, rooms in enumerate(RANKS)
    for room in ((rooms,) if isinstance(rooms, str) else rooms)
}


def room_of(module: str) -> str:
    """Return the room of a module: the longest of its beginnings that has a rank."""
    parts = module.split(".")
    beginnings = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next(each for each in beginnings if each in RANK)


def packages() -> list[str]:
    inits = (path.relative_to(PACKAGE).parts for path in PACKAGE.rglob("__init__.py"))
    return sorted(".".join(parts[:-1]) for parts in inits)


def arrows_of(module: str) -> set[str]:
    """Return what it imports of ours, also for types alone."""
    return own(imports_of(module, for_types=True))


@pytest.mark.parametrize("module", modules() + packages())
def test_module_imports_nothing_of_a_higher_rank(module: str) -> None:
    rank = RANK[room_of(module)]
    names = arrows_of(module)
    assert {name for name in names if RANK[room_of(name)] > rank} == set()


def test_imports_have_no_circle() -> None:
    left = {module: arrows_of(module) for module in modules() + packages()}
    while left:
        free = [module for module, names in left.items() if not names & left.keys()]
        assert free, f"circle among {sorted(left)}"
        for module in free:
            del left[module]


@pytest.mark.parametrize("module", modules())
def test_module_imports_nothing_that_must_be_installed(module: str) -> None:
    names = {name.split(".")[0] for name in imports_of(module)} - {"fastredlock"}
    if module.startswith("_cli."):
        names.discard("redis")  # the extra `cli`
    if module.startswith("demo."):
        names.discard("rich")  # the extra `demo`
    if module in ("prometheus", "otel"):
        names -= {"prometheus_client", "opentelemetry"}  # the extras of these names
    if module == "_reports.votes":
        names -= {"_sha2", "_sha256"}  # of CPython from 3.12 on, and before
    if module.startswith("testing."):
        names -= {"hiredis", "lupa"}  # the core has it; the extra `testing`
    if module.startswith(("compat", "_endpoints.")):
        names.discard("redis")  # users of redis-py have it
    if module.startswith("compat.redis_lock."):
        names -= {"django", "django_redis", "django_valkey"}  # their users have them
    assert names <= sys.stdlib_module_names


@pytest.mark.parametrize("module", SMALL)
def test_small_module_loads_no_extension_when_it_is_imported(module: str) -> None:
    assert "_core" not in own(imports_of(module, into_functions=False))


@pytest.mark.parametrize("module", [m for m in modules() if is_outer(m)])
def test_outer_module_knows_the_public_names_and_no_lock(module: str) -> None:
    inner = {name for name in own(imports_of(module)) if not is_outer(name)}
    assert {name for name in inner - PUBLIC if room_of(name) not in BELOW} == set()


def test_core_imports_the_standard_library_and_hiredis_alone() -> None:
    text = "\n".join(path.read_text() for path in sorted(SOURCE.rglob("*.p[yx][xdi]")))
    named = re.findall(r"^\s*(?:from|import) +([\w.]+)", text, re.MULTILINE)
    cimported = re.findall(r"^\s*(?:from|cimport) +([\w.]+)", text, re.MULTILINE)
    tops = {name.split(".")[0] for name in {*named, *cimported}}
    allowed = {"cython", "cpython", "libc", "posix", "system", "hiredis"}
    assert "hiredis" in tops
    assert tops - allowed <= sys.stdlib_module_names


@pytest.mark.parametrize(
    "name",
    [
        *("protocol/commands", "protocol/replies", "protocol/handshake"),
        *("round/electorate", "round/key", "round/fencing"),
        *("round/tokens", "round/round", "round/batch", "round/local"),
        *("waiting/queue", "master/in_flight", "master/master"),
    ],
)
def test_pure_part_of_the_core_reads_no_clock_and_no_descriptor(name: str) -> None:
    lines = (SOURCE / f"{name}.pyx").read_text().splitlines()
    code = "\n".join(line.split("#")[0] for line in lines)
    assert not re.search(r"\bclock_ns\b|\.fd\b|\b(send|recv|p?poll)\(", code)


# ---- the cost


def python(code: str, environment: dict[str, str] | None = None) -> str:
    """Run code in a new interpreter that finds this tree."""
    path = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); "
    command = [sys.executable, "-c", path + code]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment
    ).stdout


def test_import_of_fastredlock_loads_nothing_heavy() -> None:
    told = python("import fastredlock; print(*sys.modules)").split()
    assert "fastredlock.client" in told
    assert set(told) & HEAVY == set()
    assert "fastredlock.types" not in told


def test_clients_without_an_observer_load_nothing_of_it() -> None:
    made = "fastredlock.FastRedlock(['redis://a']), m.FastRedlock(['redis://a'])"
    told = python(f"import fastredlock, fastredlock.asyncio as m, sys; {made};"
                  "print(*sys.modules)").split()  # fmt: skip
    of_observers = re.compile("obser|otel|prometheus|opentelemetry")
    assert [*filter(of_observers.search, told)] == []


# What depends on the interpreter's version, or takes longer the larger the program is.
FORBIDDEN = re.compile(
    r"co_code\b|\bopcode\b|_getframe\b|_current_frames\b|PyEval_GetFrame|\bf_back\b"
    r"|\bget_(referrers|objects)\b"
)


def test_product_reads_no_byte_code_no_frames_and_asks_the_collector_nothing() -> None:
    files = [*PACKAGE.glob("**/*.py"), *SOURCE.glob("**/*.p*")]
    found = [
        f"{path.name}: {line}"
        for path in files
        for line in path.read_text().splitlines()
        if FORBIDDEN.search(line)
    ]
    assert len(files) > 100
    assert found == []


LONGEST = 60  # lines of a function of the shell, without its docstring


def length_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first, last = function.body[0], function.end_lineno or 0
    text = ast.get_docstring(function, clean=False)
    shown = 0 if text is None else (first.end_lineno or 0) - first.lineno + 1
    return last - function.lineno + 1 - shown


def test_function_of_the_shell_when_it_is_long_then_is_taken_apart() -> None:
    lengths = {
        f"{path.relative_to(PACKAGE)} {node.name}": length_of(node)
        for path in PACKAGE.glob("**/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert len(lengths) > 800
    assert {name: n for name, n in lengths.items() if n > LONGEST} == {}
