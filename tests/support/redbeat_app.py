"""A Celery app for `celery beat` with RedBeat, on redis-py's Lock or ours."""

from __future__ import annotations

import os
from functools import partialmethod
from importlib import import_module

import redis
from celery import Celery

URL = os.environ["REDBEAT_URL"]


class Redis(redis.Redis):
    """Make locks of the module under test, whoever asks for one."""

    lock = partialmethod(
        redis.Redis.lock, lock_class=import_module(os.environ["REDBEAT_LOCK"]).Lock
    )


app = Celery("redbeat_app", broker="memory://")
app.conf.redbeat_redis_url = URL
app.conf.redbeat_redis_options = {}
app.conf.redbeat_lock_timeout = int(os.environ["REDBEAT_TIMEOUT"])
app.conf.beat_max_loop_interval = float(os.environ["REDBEAT_TICK"])
app.redbeat_redis = Redis.from_url(URL, decode_responses=True)  # RedBeat looks here
