"""FastAPI: an order is shipped by one request at a time, over all workers and hosts.

FASTREDLOCK_MASTERS=redis://a:6379,redis://b:6379,... uvicorn fastapi_app:app

409: another request is at it. 503: the masters cannot be reached, or the lock was lost
under the work, which was cancelled then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse

from fastredlock import FastRedlockError, ResourceTakenError
from fastredlock.asyncio import FastRedlock

log = logging.getLogger(__name__)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Hold one FastRedlock per worker, of its event loop."""
    async with FastRedlock.from_env(ttl=10) as locks:
        app.state.locks = locks
        yield


app = FastAPI(lifespan=lifespan)


def locks_of(request: Request) -> FastRedlock:
    """Give the worker's locks."""
    locks: FastRedlock = request.app.state.locks
    return locks


Locks = Annotated[FastRedlock, Depends(locks_of)]


@app.post("/orders/{order}/ship")
async def ship(order: int, locks: Locks) -> dict[str, int]:
    """Ship an order; wait for 0.2 s at most while another request does."""
    async with locks.lock(f"orders:{order}", timeout=0.2, keep_alive=True) as lease:
        steps = 0
        for _ in range(5):
            lease.check()  # before each step: this process may have stood still
            await asyncio.sleep(0.1)  # the work; cancelled where the lease is lost
            steps += 1
        return {"order": order, "steps": steps}


@app.exception_handler(ResourceTakenError)
async def taken(request: Request, error: ResourceTakenError) -> JSONResponse:
    """Let the client come again."""
    headers = {"Retry-After": "1"}
    return JSONResponse({"detail": "in progress"}, status_code=409, headers=headers)


@app.exception_handler(FastRedlockError)
async def failed(request: Request, error: FastRedlockError) -> JSONResponse:
    """Log the cause; the answer has no address of a master."""
    log.error("%s", error)
    return JSONResponse({"detail": "not done: try again later"}, status_code=503)
