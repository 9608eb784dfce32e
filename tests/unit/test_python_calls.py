"""Nothing that may run Python stands between two halves of a change of the engine.

CPython runs signal handlers, which may raise, in each function of Python, and where it
makes a text of an object: of an integer, too. So does a codec, a class, a loop. Here
are all functions of the core that call such a thing, each with the reason why it may.
Nothing of it is called in a pass, in which garbage is not collected either:
tests/fuzz/raising sees that, and tries both everywhere else.
"""

from __future__ import annotations

import re

import pytest

from tests.support.generated import ROOT, Call, calls, calls_in, is_current

pytestmark = pytest.mark.skipif(
    not is_current(), reason="no C file of these sources: built elsewhere"
)
STATES = (
    *("engine/", "waiting/", "round/", "master/", "drivers/leader"),
    *("drivers/blocking", "protocol/replies"),
)
MAY_RUN_PYTHON = re.compile(
    r"PyObject_(Str|Repr|ASCII)$|PyNumber_Remainder|PyErr_CheckSignals|__Pyx_Import$"
    r"|__Pyx_PyObject_(Format|Unicode|Call|FastCall)|__Pyx_PyUnicode_Format"
    r"|__Pyx_Object_Vectorcall|PyContext_"
)
# They call functions of C alone: methods of lists, sets and texts, heapq, zip, a class
# of the core; and format what is a str, or a float.
OF_C = {
    *("gate_on_queue_refused", "engine_begin_anew", "connection_review"),
    *("error_text", "connection_on_other_reply"),
    *("connection_health", "nodes_at", "routes_number", "routes_on_redirect"),
    *("connection_withheld", "wait_queues_add_due", "wait_queues_take_due"),
    *("reply_next", "reply_text"),
    "wait_queue_read_table",
}
# What is raised there ends the connection, and with it all that was under way on it.
ENDS_A_CONNECTION = {
    *("connection_decrypt", "connection_encrypt", "connection_find_address"),
    *("connection_on_bytes", "connection_on_connected", "connection_on_ready"),
    "connection_on_handshake_reply",
    *("reply_feed", "tls_reason"),
}
# Between two steps, with nothing in hand; or before anything was changed.
IN_BETWEEN = {
    *("blocking_lead", "blocking_follow", "blocking_run_work", "leader_await"),
    *("connection_begin_preparing", "preparing_begin"),
    *("connection_of", "connection_encoded"),
    "idle_is_watched",
}
# Of engines that nobody else uses any more; or it is asked whether the end has begun.
AT_THE_EXIT = {
    *("interpreter_exit_hook", "interpreter_exit_drain"),
}
# The code of gevent: a leader waits in its hub between two passes.
OF_THE_HUB = {
    *("greenlet_hub_caller", "greenlet_hub_wait", "greenlet_is_over"),
    *("greenlet_hub_of_gevent", "is_patched"),
}
PRINTED = {"__Pyx_WriteUnraisable"}
NEW_OBJECTS = {"PyList_New", "PyTuple_New", "PyTuple_Pack", "PyDict_New"}


def may_run_python(call: Call) -> bool:
    return (
        call.is_c
        and call.file.startswith(STATES)
        and MAY_RUN_PYTHON.match(call.called) is not None
        and not call.source().startswith("raise ")
    )


def test_core_when_it_changes_a_state_then_calls_nothing_that_may_run_python() -> None:
    known = OF_C | ENDS_A_CONNECTION | IN_BETWEEN | AT_THE_EXIT | OF_THE_HUB
    found = {call.function: call for call in calls() if may_run_python(call)}
    new = [f"{found[each]}: {found[each].source()}" for each in found.keys() - known]
    assert not new, "\n".join(new)
    assert known <= found.keys(), f"idle: {known - found.keys()}"


def test_core_when_an_integer_becomes_bytes_then_c_formats_it() -> None:
    found = [call for call in calls() if call.called == "PyNumber_Remainder"]
    # The name of a new engine: before there is any round.
    assert {call.function for call in found} <= {"6Engine_2__init__"}, found


# An exception in these is printed, and they return as if nothing had happened. They
# index lists, and read attributes of objects that are there.
def test_function_when_it_cannot_raise_then_calls_nothing_that_may_run_python() -> None:
    silent = {call.function for call in calls() if call.called in PRINTED}
    assert len(silent) > 10
    found = [
        f"{call.file}:{call.line} {call.source()}"
        for call in calls()
        if call.function in silent
        and not call.function.endswith(("__del__", "greenlet_hub_caller"))
        and (MAY_RUN_PYTHON.match(call.called) or call.called in NEW_OBJECTS)
    ]
    assert not found, "\n".join(found)


def test_tls_when_it_encrypts_then_not_in_the_middle_of_a_rounds_commands() -> None:
    callers = set()
    for path in (ROOT / "src_cython").rglob("*.pyx"):
        for function in re.split(r"^cdef ", path.read_text("utf-8"), flags=re.M)[1:]:
            head, _, body = function.partition(":\n")
            if "connection_encrypt(" in body:
                callers.add(head.partition("(")[0].split()[-1])
    assert callers == {"engine_between_passes"}


def test_check_when_python_formats_an_integer_then_sees_it() -> None:
    own = (
        "static PyObject *__pyx_f_11fastredlock_5_core_turn_waited_us(int64_t a) {\n"
        '  /* "src_cython/waiting/queue.pyx":91\n'
        "  __pyx_t_5 = PyNumber_Remainder(__pyx_kp_b_d, __pyx_t_4);\n"
    )
    [call] = calls_in(own)
    assert may_run_python(call)
