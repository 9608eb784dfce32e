"""The errors of aioredlock, under its names."""

from __future__ import annotations


class AioredlockError(Exception):
    """Catch every error of this module."""


class LockError(AioredlockError):
    """Report that a lock was not acquired, extended or released."""


class LockAcquiringError(LockError):
    """Report that others hold the lock, or that it is gone."""


class LockRuntimeError(LockError):
    """Report that fewer than a quorum of the masters could answer."""
