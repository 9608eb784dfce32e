"""The logger of pottery, as it was configured for the library."""

from logging import getLogger

__all__ = ["logger"]

logger = getLogger("pottery")
