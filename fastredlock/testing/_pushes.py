"""Who listens to which channel of a server, and the messages on their way."""

from __future__ import annotations

from typing import Any

from ._replies import bulk, push


class Pushes:
    """Hold the subscribers of one server; a subscriber is any object."""

    def __init__(self) -> None:
        self.channels: dict[bytes, list[Any]] = {}
        self._sent: list[tuple[Any, bytes]] = []

    def subscribe(self, listener: object, channel: bytes) -> bytes:
        """Let a connection listen; return the push that confirms it."""
        listeners = self.channels.setdefault(channel, [])
        if listener not in listeners:
            listeners.append(listener)
        return push(b"subscribe", channel, b":1\r\n")

    def forget(self, listener: object) -> None:
        """Remove a connection that is closed from all channels."""
        for channel, listeners in tuple(self.channels.items()):
            if listener in listeners:
                listeners.remove(listener)
            if not listeners:
                del self.channels[channel]

    def count(self, channel: bytes) -> int:
        """Count the subscribers of a channel."""
        return len(self.channels.get(channel, ()))

    def publish(self, channel: bytes, text: bytes) -> int:
        """Send a message; return the number of its receivers."""
        listeners = self.channels.get(channel, ())
        message = push(b"message", channel, bulk(text))
        self._sent += [(listener, message) for listener in listeners]
        return len(listeners)

    def take(self) -> list[tuple[Any, bytes]]:
        """Return the messages since the last call, each with its receiver."""
        sent, self._sent = self._sent, []
        return sent
