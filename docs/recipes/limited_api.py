"""FastAPI: an expensive API, called within its limits by all workers on all hosts.

FASTREDLOCK_MASTERS=redis://a:6379,redis://b:6379,... uvicorn limited_api:app

Its provider allows 5 calls a second and 3 at a time. 429: others have all of that for
as long as a request may wait. 503: the masters cannot be reached, or the slot was lost
under the call, which was cancelled then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from fastredlock import FastRedlockError, ResourceTakenError
from fastredlock.asyncio import FastRedlock

AT_A_TIME, BEGUN, PER = 3, 5, 1.0  # s; the same in all workers
WAIT = 3.0  # s; of a request, for each of the two
log = logging.getLogger(__name__)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Hold one FastRedlock per worker, of its event loop."""
    async with FastRedlock.from_env(ttl=10) as locks:
        app.state.calls = locks.semaphore(
            "llm:calls", AT_A_TIME, timeout=WAIT, keep_alive=True
        )
        app.state.rate = locks.rate("llm:rate", BEGUN, per=PER, timeout=WAIT)
        yield


app = FastAPI(lifespan=lifespan)


async def complete(prompt: str) -> str:
    """Call the API."""
    await asyncio.sleep(0.2)
    return prompt.upper()


@app.post("/complete/{prompt}")
async def answer(prompt: str, request: Request) -> dict[str, str]:
    """Answer a prompt: first the slot, then the permit, which is to be used at once."""
    async with request.app.state.calls:
        while True:
            async with request.app.state.rate as permit:
                if permit.remaining() > 0:  # else this loop was busy too long
                    return {"answer": await complete(prompt)}


@app.exception_handler(ResourceTakenError)
async def taken(request: Request, error: ResourceTakenError) -> JSONResponse:
    """Let the client come again."""
    headers = {"Retry-After": "1"}
    return JSONResponse({"detail": "busy"}, status_code=429, headers=headers)


@app.exception_handler(FastRedlockError)
async def failed(request: Request, error: FastRedlockError) -> JSONResponse:
    """Log the cause; the answer has no address of a master."""
    log.error("%s", error)
    return JSONResponse({"detail": "not done: try again later"}, status_code=503)
