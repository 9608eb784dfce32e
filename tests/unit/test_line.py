"""The line: its stages are called in the order that is drawn."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FUNCTION = re.compile(r"^cdef [^\n]*?\b(\w+)\((?:.*?\n)+?(?=\S(?<!\)))", re.MULTILINE)
STAGES = {
    "connection_on_bytes": "received",
    "turns_take": "turns",
    "engine_on_time": "due",
    "engine_finish_round": "judged",
    "engine_take_in": "admitted",
    "sending_queue": "sent",
}

PASSES = {
    *("engine_finish", "engine_submit_work", "engine_withdraw_work"),
    *("engine_end_acquires", "engine_end_idle"),
}


def bodies() -> dict[str, str]:
    """Read the functions of the core, without their comments."""
    text = "".join(path.read_text() for path in ROOT.glob("src_cython/*/*.pyx"))
    text = re.sub(r"#.*", "", text)
    return {
        found[1]: found[0][found.end(1) - found.start() :]
        for found in FUNCTION.finditer(text)
    }


def stages(
    functions: dict[str, str], name: str, known: dict[str, list[str]]
) -> list[str]:
    """List the stages that are called in a function, in the order of the last calls."""
    if name not in known:
        found = known[name] = []
        for called in re.findall(r"\b(\w+)\(", functions.get(name, "")):
            new = stages(functions, called, known)
            if called in STAGES and STAGES[called] not in new:
                new = [STAGES[called], *new]
            found[:] = [*(each for each in found if each not in new), *new]
    return known[name]


def test_stages_when_a_pass_calls_them_then_in_the_order_that_is_drawn() -> None:
    order = stages(bodies(), "engine_take_events", {})
    page = (ROOT / "docs" / "design.md").read_text("utf-8")
    line = (ROOT / "src_cython" / "engine" / "pass.pyx").read_text("utf-8")
    drawn = re.findall(
        r"^#   (\w+)  +\S", line.partition("# --- line")[2], re.MULTILINE
    )
    assert order == drawn
    assert ", ".join(drawn) in page


@pytest.mark.parametrize(
    ("function", "callers"),
    [
        ("sending_all", PASSES),
        ("sending_queue", {"sending_all"}),
        ("connection_send", {"sending_queue_at", "connection_send_again"}),
    ],
)
def test_command_when_it_is_sent_then_by_the_last_stage(
    function: str, callers: set[str]
) -> None:
    """Or by its connection, once more."""
    call = re.compile(rf"\b{function}\(")
    assert {name for name, body in bodies().items() if call.search(body)} == callers
