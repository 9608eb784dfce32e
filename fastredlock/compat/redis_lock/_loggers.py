"""The loggers of python-redis-lock, by the names under which its users filter them."""

from logging import getLogger

logger_for_acquire = getLogger("redis_lock.acquire")
logger_for_refresh_thread = getLogger("redis_lock.refresh.thread")
logger_for_refresh_start = getLogger("redis_lock.refresh.start")
logger_for_refresh_shutdown = getLogger("redis_lock.refresh.shutdown")
logger_for_refresh_exit = getLogger("redis_lock.refresh.exit")
logger_for_release = getLogger("redis_lock.release")
