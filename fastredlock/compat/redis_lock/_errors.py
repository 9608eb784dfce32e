"""The errors of python-redis-lock, under its names."""


class AlreadyAcquired(RuntimeError):  # noqa: N818 - here and below: its name
    """Report an acquire of a lock that this Lock, or another with its id, holds."""


class NotAcquired(RuntimeError):  # noqa: N818
    """Report a release or an extend of a lock that is not, or no longer, held."""


class AlreadyStarted(RuntimeError):  # noqa: N818
    """Report a second renewal thread."""


class TimeoutNotUsable(RuntimeError):  # noqa: N818
    """Report a timeout of an acquire that does not block."""


class InvalidTimeout(RuntimeError):  # noqa: N818
    """Report a negative timeout."""


class TimeoutTooLarge(RuntimeError):  # noqa: N818
    """Report a timeout longer than the lock would live."""


class NotExpirable(RuntimeError):  # noqa: N818
    """Report an extend of a key without expiry."""
