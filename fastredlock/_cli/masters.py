"""`fastredlock masters`: which masters clients have; which step of a change is safe.

A client says it in the name of its connections: src_cython/protocol/lists.pyx.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from math import inf
from typing import TYPE_CHECKING, Any

from .._core import Client, Lists, are_neighbours, clients_in, has_quorum, lists_text
from .._options.masters import Endpoint, lists_told
from .._reports.votes import lives_ms
from . import Status
from .connection import Server, ServerError, need_redis_py, shards_of
from .locks import Scan
from .parser import MASTERS_END, Parser, duration, new_reader
from .quarantine import WELL, state

if TYPE_CHECKING:
    from .. import FastRedlock

NAMED_MOST = 3  # clients, in a line
_DESCRIPTION = """\
Show which masters each client has. With the list that they change to, say which step of
the change is safe now.
"""
_END = f"""\
exit status:
  {Status.OK:<4} all clients have the same list; of a change: its next step is safe
  {Status.WARNING:<4} wait, or begin
  {Status.CRITICAL:<4} two clients may hold one lock: their lists do not fit
  {Status.USAGE:<4} wrong arguments
  {Status.UNREACHABLE:<4} too few masters say who their clients are

{MASTERS_END}"""
OLD, BOTH, NEW, OTHER = "old list", "both lists", "new list", "another list"


def main(words: Sequence[str]) -> int:
    parser = Parser("masters", _DESCRIPTION, _END)
    parser.add_masters()
    asked = parser.parse_args(words)
    need_redis_py()
    with new_reader(asked) as locks:
        return _advise(locks)


def _advise(locks: FastRedlock) -> int:
    settings = locks._driver.settings
    endpoints, electorate = settings.endpoints, settings.electorate
    own = lists_told(endpoints, electorate, settings.key_prefix, 0, False)
    clients, failures = seen_on(endpoints, own.keys)
    _print_clients(clients, own)
    for name, failure in failures.items():
        print(f"{name}  does not say who its clients are: {failure}")
    faults = [*misfits(clients, own.names)]
    if faults:
        print(*faults, sep="\n")
        return Status.CRITICAL
    if not has_quorum((each.name not in failures for each in endpoints), electorate):
        return Status.UNREACHABLE
    if len(own.lists) == 1:
        return Status.OK
    only_old, only_new = (
        [each for vote, each in enumerate(endpoints) if electorate.only_in(vote) == its]
        for its in ("old", "new")
    )
    waits = (
        [*_without_vote(only_new)] if any(each.max_ttl_ms for each in clients) else []
    )
    counts = Counter(kind_of(each.lists, own.lists) for each in clients)
    before = left_from_before(locks) if {*counts} == {BOTH} else 0
    status, step = step_of(counts, before, ", ".join(each.name for each in only_old))
    print(*waits, step, sep="\n")
    return Status.WARNING if waits else status


def step_of(counts: Counter[str], before_s: float | None, ends: str) -> tuple[int, str]:
    """Return the status and the text for so many clients of each kind.

    `before_s`: until the last lease that the new list does not know ends; inf: it has
    no end; None: not known. `ends`: the masters that only the old list has.
    """
    old, both, new = counts[OLD], counts[BOTH], counts[NEW]
    text, status = f"step 4: no client has the old list: stop {ends}", Status.OK
    if counts[OTHER]:
        text = f"wait: {_clients(counts[OTHER])} another list: end that change first"
    elif old and both:
        text = f"wait: {_clients(old)} only the old list"
    elif old:
        text = f"step 1: deploy both lists: {_clients(old)} the old one"
    elif both and new:
        text = f"wait: {_clients(both)} both lists: keep the old masters running"
    elif not both and not new:
        text = "step 1: deploy both lists: no client is connected"
    elif both and before_s is None:
        text = "wait for the longest ttl: leases from before cannot be listed"
    elif both and before_s:
        ends = (
            "never ends: release it" if before_s == inf else f"ends in {before_s:.1f} s"
        )
        text = f"wait: the longest lease from before {ends}"
    elif both:
        return Status.OK, "step 3: deploy the new list"
    is_done = new and not (old or both or counts[OTHER])
    return status if is_done else Status.WARNING, text


def _clients(count: int) -> str:
    return "1 client has" if count == 1 else f"{count} clients have"


def kind_of(lists: tuple[frozenset[str], ...], own: tuple[frozenset[str], ...]) -> str:
    if {*lists} == {*own}:
        return BOTH if len(own) == 2 else OLD
    return OLD if lists == own[:1] else NEW if lists == own[1:] else OTHER


def _print_clients(clients: Sequence[Client], own: Lists) -> None:
    names = ("old list ", "new list ") if len(own.lists) == 2 else ("list ",)
    for name, masters in zip(names, own.lists, strict=True):
        print(name, ", ".join(sorted(own.names[digits] for digits in masters)))
    for each in clients:
        kind = kind_of(each.lists, own.lists)
        if kind is OTHER:
            kind = f"{kind} {lists_text(each.lists, own.names)}"
        elif len(own.lists) == 1:
            kind = "this list"
        print(f"  {each.name}  {each.address}  {kind}  for {duration(int(each.age_s))}")


# ---- who is there


def seen_on(
    endpoints: Sequence[Endpoint], keys: str
) -> tuple[list[Client], dict[str, str]]:
    """Return each client of these keys, and by its name why a master tells none."""
    found: dict[str, Client] = {}
    failures = {}
    with ThreadPoolExecutor(max(1, len(endpoints))) as pool:
        told = pool.map(_clients_on, endpoints)
        for endpoint, there in zip(endpoints, told, strict=True):
            if isinstance(there, str):
                failures[endpoint.name] = there
                continue
            for each in there:
                if each.keys == keys and each.db == str(endpoint.db):
                    found.setdefault(each.identity, each)
    kinds = sorted(found.values(), key=lambda each: (len(each.lists), each.address))
    return kinds, failures


def _clients_on(endpoint: Endpoint) -> list[Client] | str:
    found = []
    try:
        for node, _ in shards_of(endpoint):
            with Server(node) as server:
                found += clients_in(server.ask("CLIENT", "LIST"))
    except ServerError as error:
        remedy = "; grant +client|list" * ("permission" in str(error))
        return f"{error}{remedy}"
    return found


def misfits(clients: Iterable[Client], names: dict[str, str]) -> Iterator[str]:
    """Yield a text for each two lists that do not fit, and one if max_ttl differs."""
    by_lists: dict[tuple[frozenset[str], ...], list[Client]] = {}
    by_ttl: dict[int, list[Client]] = {}
    for each in clients:
        by_lists.setdefault(each.lists, []).append(each)
        by_ttl.setdefault(each.max_ttl_ms, []).append(each)
    for pair in combinations(by_lists, 2):
        if not are_neighbours(*pair):
            used = (f"{lists_text(it, names)}: {_named(by_lists[it])}" for it in pair)
            yield (
                f"two lists that do not fit are in use: {' | '.join(used)}: two may "
                "hold one lock (docs/changing-masters.md)"
            )
    if len(by_ttl) > 1:
        used = (f"{ms / 1e3:g} s: {_named(each)}" for ms, each in by_ttl.items())
        yield f"clients differ in their max_ttl (0: none): {' | '.join(used)}"


def _named(clients: Sequence[Client]) -> str:
    shown = [f"{each.name} at {each.address}" for each in clients[:NAMED_MOST]]
    more = len(clients) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


# ---- what is still to come


def _without_vote(endpoints: Iterable[Endpoint]) -> Iterator[str]:
    """Yield a text for each of these that the restart guard withholds."""
    for endpoint in endpoints:
        try:
            for node, tag in shards_of(endpoint):
                with Server(node) as server:
                    text = state(server, tag, False)
        except ServerError as error:
            text = str(error)
        if text != WELL:
            yield f"wait: {endpoint.name} has no vote yet: {text}"


def left_from_before(locks: FastRedlock) -> float | None:
    """Return for how many s the leases that only the old list knows live.

    A lease of a client with both lists may be seen before it is on all masters: that is
    one that the second look does not find, or finds on all.
    """
    looks: list[dict[tuple[Any, str], float]] = []
    for _ in range(2):
        looks.append({})
        scan = Scan(locks, "*")
        for holding in (each for step in scan.steps() for each in step):
            for vote in holding.votes:
                token = vote.token_hash
                if token and token not in holding.holders and vote.only_in != "new":
                    left = lives_ms(vote) / 1e3
                    known = looks[-1].setdefault((holding.resource, token), left)
                    looks[-1][holding.resource, token] = max(known, left)
        scan.close()
        if not scan.is_of_quorum:
            return None
    return max((looks[1][key] for key in looks[0].keys() & looks[1].keys()), default=0)
