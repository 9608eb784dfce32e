"""The few words of PromQL that our alerts use, evaluated on two scrapes.

    selectors, `increase(selector[5m])`, `sum`, `sum by (label)`, `histogram_quantile`,
    `/`, and a comparison with a number

`increase` is the difference of the two scrapes, without extrapolation.
"""

from __future__ import annotations

import re

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Scraped = dict[tuple[str, Labels], float]

SELECTOR = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})?$")
MATCHER = re.compile(r'(\w+)="([^"]*)"')
NOTHING: Labels = frozenset()


def fires(expression: str, before: Scraped, after: Scraped) -> bool:
    """Return whether an alert fires: whether any series is left by its comparison."""
    side, comparison, number = re.split(r" (>|<|==) ", expression)
    found = evaluated(side, before, after)
    compare = {
        ">": lambda value: value > float(number),
        "<": lambda value: value < float(number),
        "==": lambda value: value == float(number),
    }[comparison]
    return any(compare(value) for value in found.values())


def evaluated(text: str, before: Scraped, after: Scraped) -> Vector:
    """Evaluate an expression; ValueError for what is not known."""
    text = text.strip()
    if " / " in text:
        left, right = (evaluated(part, before, after) for part in text.split(" / "))
        return {
            labels: value / right[labels]
            for labels, value in left.items()
            if right.get(labels)
        }
    if found := re.fullmatch(r"increase\((.*)\[\d+m\]\)", text):
        return increase(selected(found[1], before), selected(found[1], after))
    if found := re.fullmatch(r"sum(?: by \((\w+)\))? ?\((.*)\)", text):
        return summed(found[1], evaluated(found[2], before, after))
    if found := re.fullmatch(r"histogram_quantile\(([\d.]+), (.*)\)", text):
        return quantile(float(found[1]), evaluated(found[2], before, after))
    return selected(text, after)


def selected(text: str, scraped: Scraped) -> Vector:
    """Return the series of a selector; ValueError where there can be none."""
    found = SELECTOR.match(text)
    if found is None:
        raise ValueError(f"not understood: {text!r}")
    wanted = set(MATCHER.findall(found["labels"] or ""))
    vector = {
        labels: value
        for (name, labels), value in scraped.items()
        if name == found["name"] and wanted <= labels
    }
    if not vector:
        raise ValueError(f"no such series: {text!r}")
    return vector


def increase(before: Vector, after: Vector) -> Vector:
    """Return by how much each series has risen."""
    return {labels: value - before[labels] for labels, value in after.items()}


def summed(by: str | None, vector: Vector) -> Vector:
    """Sum the series that have the same value of a label, or all of them."""
    sums: Vector = {}
    for labels, value in vector.items():
        key = frozenset(pair for pair in labels if pair[0] == by)
        sums[key] = sums.get(key, 0.0) + value
    return sums


def quantile(share: float, buckets: Vector) -> Vector:
    """Return the upper bound of the bucket in which the quantile lies."""
    bounds = sorted((float(dict(labels)["le"]), n) for labels, n in buckets.items())
    total = bounds[-1][1]
    inside = [bound for bound, count in bounds if total and count >= share * total]
    return {NOTHING: inside[0]} if inside else {}
