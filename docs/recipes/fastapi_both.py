"""FastAPI with `def` and `async def` endpoints that exclude each other.

FASTREDLOCK_MASTERS=redis://a:6379,redis://b:6379,... uvicorn fastapi_both:app

FastAPI runs a plain `def` in a thread: it takes the blocking client. An `async def`
runs in the event loop, which a blocking client would stop: it takes the awaitable one.
The keys are the same, so a lock of one kind excludes the other kind.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

import fastredlock.asyncio
from fastredlock import FastRedlock, ResourceTakenError

locks = FastRedlock.from_env(ttl=10)  # of all threads; it connects at its first use


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Hold one awaitable client, of this event loop; close both at the end."""
    async with fastredlock.asyncio.FastRedlock.from_env(ttl=10) as app.state.locks:
        yield
    locks.close()


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{order}/print")
def print_order(order: int) -> dict[str, str]:
    """Run in a thread of the pool."""
    with locks.lock(f"orders:{order}", timeout=0.1):
        time.sleep(1)  # the work
        return {"done": "print"}


@app.post("/orders/{order}/ship")
async def ship_order(order: int, request: Request) -> dict[str, str]:
    """Run in the event loop."""
    awaitable: fastredlock.asyncio.FastRedlock = request.app.state.locks
    async with awaitable.lock(f"orders:{order}", timeout=0.1):
        await asyncio.sleep(1)  # the work
        return {"done": "ship"}


@app.exception_handler(ResourceTakenError)
async def taken(request: Request, error: ResourceTakenError) -> JSONResponse:
    """Let the client come again."""
    headers = {"Retry-After": "1"}
    return JSONResponse({"detail": "in progress"}, status_code=409, headers=headers)
