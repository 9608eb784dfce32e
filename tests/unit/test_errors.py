"""The errors: their classes, their texts, and the secrets that no text has."""

import copy
import pickle
import traceback

import pytest

import fastredlock
from fastredlock import (
    AcquireError,
    ConfigurationError,
    FastRedlock,
    FastRedlockError,
    ForeignKeyError,
    InternalError,
    LeaseLostError,
    MasterVote,
    NotExtendedError,
    QuorumUnreachableError,
    ReentryError,
    ResourceTakenError,
    ValidityExhaustedError,
    Vote,
)
from fastredlock import errors as errors_module
from fastredlock._core import Handshake, Operation, Round
from tests.support.rounds import TERMS, ScriptedLocks, new_scripts

VOTES = (
    MasterVote("a:6379", Vote.GRANTED, None, 0.4),
    MasterVote("b:6379", Vote.TAKEN, None, 1.25),
    MasterVote("c:6379", Vote.TAKEN, None, 2.0),
    MasterVote("d:6379", Vote.FAILED, "connection refused"),
    MasterVote("e:6379", Vote.SILENT, "no reply within 500 ms"),
)
SAID = (
    "1 of 5 granted, 2 taken, 1 failed, 1 silent [a:6379 GRANTED in 0.4 ms; "
    "b:6379 TAKEN in 1.2 ms; c:6379 TAKEN in 2.0 ms; "
    "d:6379 FAILED (connection refused); e:6379 SILENT (no reply within 500 ms)]"
)
ACQUIRE_ERRORS = [
    *(ResourceTakenError, QuorumUnreachableError),
    *(ValidityExhaustedError, ForeignKeyError),
]
SECRET = "hunter2"


# ---- the tree


@pytest.mark.parametrize(
    ("error", "parents"),
    [
        (ConfigurationError, (FastRedlockError, ValueError)),
        (InternalError, (FastRedlockError,)),
        (LeaseLostError, (FastRedlockError,)),
        (ReentryError, (FastRedlockError,)),
        (NotExtendedError, (FastRedlockError,)),
        (AcquireError, (FastRedlockError,)),
        *((error, (AcquireError,)) for error in ACQUIRE_ERRORS),
    ],
)
def test_error_stands_in_its_place_of_the_tree(
    error: type[Exception], parents: tuple[type[Exception], ...]
) -> None:
    assert error.__bases__ == parents


def test_every_error_is_public() -> None:
    errors = {
        name
        for name, value in vars(errors_module).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert errors <= set(fastredlock.__all__)


# ---- what they say


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (ResourceTakenError, "held by others"),
        (QuorumUnreachableError, "fewer than a quorum of masters could answer"),
        (
            ValidityExhaustedError,
            "granted by a quorum, but the round used the validity up",
        ),
    ],
)
def test_acquire_error_names_resource_attempts_time_counts_and_each_master(
    error: type[AcquireError], what: str
) -> None:
    message = str(error("orders:42", VOTES, 3, 0.0142))
    assert message == f"'orders:42': {what} after 3 attempts in 14 ms: {SAID}"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ResourceTakenError("r", VOTES, 1, 0.002), "after 1 attempt in 2 ms: "),
        (
            QuorumUnreachableError("r", VOTES, 3, 0.1, "give a larger ttl"),
            "in 100 ms (give a larger ttl): ",
        ),
        (LeaseLostError("r", "lost", VOTES, 0.5), f"'r': lost: {SAID}"),
        (LeaseLostError("r", "it was released"), "'r': it was released"),
        (
            NotExtendedError("r", "not confirmed", VOTES, 3.2041),
            f"'r': not confirmed, valid for 3.204 s more: {SAID}",
        ),
        (
            NotExtendedError("r", "not confirmed", VOTES, 0.0),
            f"'r': not confirmed, its validity is not known: {SAID}",
        ),
    ],
)
def test_error_says_what_is_known(error: FastRedlockError, said: str) -> None:
    assert said in str(error)


@pytest.mark.parametrize(
    ("resource", "shown"),
    [
        ("orders:42", "'orders:42'"),
        (b"orders:42", "'orders:42'"),
        ("a\nb", r"'a\nb'"),
        (b"\xff\x00", r"'\\xff\x00'"),
    ],
)
def test_resource_of_any_bytes_is_shown_on_one_line(
    resource: str | bytes, shown: str
) -> None:
    for error in (
        ResourceTakenError(resource, VOTES, 1, 0.0),
        LeaseLostError(resource, "lost"),
        NotExtendedError(resource, "not confirmed", VOTES, 0.5),
    ):
        assert str(error).startswith(f"{shown}: ")
        assert "\n" not in str(error)


# ---- pickling, for process pools


@pytest.mark.parametrize(
    "before",
    [
        *(error(b"\xff", VOTES, 3, 0.25, "a hint") for error in ACQUIRE_ERRORS),
        *(
            error("r", "lost", VOTES, 0.5)
            for error in (LeaseLostError, NotExtendedError)
        ),
        *(error("ttl=0: more") for error in (ConfigurationError, InternalError)),
        FastRedlockError("ttl=0: allowed is more"),
    ],
    ids=repr,
)
def test_error_survives_pickling_and_copying(before: FastRedlockError) -> None:
    for after in (pickle.loads(pickle.dumps(before)), copy.copy(before)):
        assert type(after) is type(before)
        assert vars(after) == vars(before)
        assert str(after) == str(before)


# ---- what they never say


def shown_of(error: BaseException) -> str:
    """Return all that a log may show of an error, its causes and locals' reprs."""
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "".join(told.format()) + repr(error) + str(vars(error))


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        (["TT."], ResourceTakenError),
        (["FFF"], QuorumUnreachableError),
        (["EEE"], QuorumUnreachableError),
        (["GG.", "TT."], LeaseLostError),
    ],
)
def test_error_shows_no_token_and_no_password(
    answers: list[str], error: type[Exception]
) -> None:
    locks = ScriptedLocks(*answers, new_token=lambda: SECRET)
    with pytest.raises(error) as caught, locks.lock("orders:42", timeout=0):
        pass
    assert SECRET not in shown_of(caught.value)


@pytest.mark.parametrize(
    ("votes", "error"), [("TT.", LeaseLostError), ("FF.", NotExtendedError)]
)
def test_failed_extension_shows_no_token(votes: str, error: type[Exception]) -> None:
    lease = ScriptedLocks("GG.", votes, new_token=lambda: SECRET).acquire("r")
    assert lease is not None
    with pytest.raises(error) as caught:
        lease.extend()
    assert SECRET not in f"{caught.value} {caught.value!r} {lease!r} {lease.votes}"


def test_repr_of_what_knows_a_password_does_not_show_it() -> None:
    locks = FastRedlock([f"redis://user:{SECRET}@a", f"redis://:{SECRET}@b"])
    settings, engine = locks._driver.settings, locks._driver.engine
    known = [locks, settings, settings.endpoints, engine, engine.states]
    assert SECRET not in repr([*known, engine.master_names])
    assert repr(locks) == "<FastRedlock a:6379, b:6379>"


def test_repr_of_what_knows_a_token_does_not_show_it() -> None:
    round = Round(Operation.ACQUIRE, b"r", SECRET.encode(), TERMS, 3)
    handshake = Handshake(
        None, SECRET.encode(), 0, b"name", (new_scripts().named["release"],)
    )
    assert SECRET not in repr([round, handshake, round.votes()])


def test_fastredlock_cannot_be_pickled_and_says_what_to_do() -> None:
    with pytest.raises(TypeError, match="make one in each process") as caught:
        pickle.dumps(FastRedlock([f"redis://:{SECRET}@a"]))
    assert SECRET not in str(caught.value)
