"""Observers for tests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fastredlock.observer import EVENTS


class Noted:
    """Note each event, its values, and the thread that told it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, tuple[Any, ...]]] = []
        self.threads: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name not in EVENTS:
            raise AttributeError(name)

        def note(*values: Any) -> None:
            self.told.append((name, values))
            self.threads.append(threading.current_thread().name)

        return note

    @property
    def events(self) -> list[str]:
        return [name for name, _ in self.told]

    def of(self, event: str) -> list[tuple[Any, ...]]:
        return [values for name, values in self.told if name == event]

    def clear(self) -> None:
        self.told.clear()
        self.threads.clear()


@contextmanager
def handled(work: Callable[[], object]) -> Iterator[list[str]]:
    """Do something at each log record of the package; yield their texts."""
    texts: list[str] = []

    def emit(record: logging.LogRecord) -> None:
        texts.append(record.getMessage())
        work()

    handler, logger = logging.Handler(), logging.getLogger("fastredlock")
    handler.emit = emit  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield texts
    finally:
        logger.removeHandler(handler)
