"""The loggers of python-redis-lock, by the names under which its users filter them."""

from logging import Logger, getLogger

logger_for_acquire: Logger = getLogger("redis_lock.acquire")
logger_for_refresh_thread: Logger = getLogger("redis_lock.refresh.thread")
logger_for_refresh_start: Logger = getLogger("redis_lock.refresh.start")
logger_for_refresh_shutdown: Logger = getLogger("redis_lock.refresh.shutdown")
logger_for_refresh_exit: Logger = getLogger("redis_lock.refresh.exit")
logger_for_release: Logger = getLogger("redis_lock.release")
