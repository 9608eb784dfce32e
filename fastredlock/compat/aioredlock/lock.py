"""The place of aioredlock's Lock."""

from .algorithm import Lock

__all__ = ["Lock"]
