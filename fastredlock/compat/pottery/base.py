"""The logger of pottery, as it was configured for the library."""

from logging import Logger, getLogger

__all__ = ["logger"]

logger: Logger = getLogger("pottery")
