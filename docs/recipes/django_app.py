"""Django: a transaction on an account by one request at a time, the commit included.

DATABASE=shop.sqlite3 FASTREDLOCK_MASTERS=redis://a:6379,... \\
    python django_app.py runserver

The lock stands around the transaction, and not inside of it: else the next request
would begin before this one's commit, and read what was there before. With
ATOMIC_REQUESTS a view's transaction ends after the view: mark it non_atomic_requests.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

import django
from django.conf import settings
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.http import require_POST

from fastredlock import FastRedlock, FastRedlockError, ResourceTakenError

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["localhost", "testserver"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": os.environ.get("DATABASE", ":memory:"),
                "ATOMIC_REQUESTS": True,
            }
        },
        MIDDLEWARE=[
            "django.middleware.csrf.CsrfViewMiddleware",
            "django_app.lock_errors",
        ],
        ROOT_URLCONF="django_app",
        SECRET_KEY=os.urandom(16).hex(),
    )
    django.setup()

log = logging.getLogger(__name__)
# One per process. Workers that gunicorn or uwsgi forks open connections of their own.
locks = FastRedlock.from_env(ttl=10)


@require_POST
@transaction.non_atomic_requests
def pay(request: HttpRequest, account: int, amount: int) -> HttpResponse:
    """Add to an account; wait for 2 s at most while others do."""
    # Here: may this user pay into it? Only then the lock.
    with locks.lock(f"accounts:{account}", timeout=2) as lease, transaction.atomic():
        balance = balance_of(account) + amount
        write(account, balance)
        lease.check()  # raises, and the transaction is rolled back
    return JsonResponse({"account": account, "balance": balance})


def balance_of(account: int) -> int:
    """Read the balance."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS accounts (id PRIMARY KEY, balance)")
        cursor.execute("SELECT balance FROM accounts WHERE id = %s", [account])
        row = cursor.fetchone()
    return row[0] if row else 0


def write(account: int, balance: int) -> None:
    """Write the balance."""
    with connection.cursor() as cursor:
        cursor.execute("REPLACE INTO accounts VALUES (%s, %s)", [account, balance])


Handler = Callable[[HttpRequest], HttpResponse]


class lock_errors:  # noqa: N801 - a middleware
    """Turn errors of locks into answers."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._handler(request)

    def process_exception(
        self, request: HttpRequest, error: Exception
    ) -> HttpResponse | None:
        """Answer 409 where it is taken, 503 where the masters or the lease are gone."""
        if isinstance(error, ResourceTakenError):
            response = JsonResponse({"detail": "in progress"}, status=409)
            response["Retry-After"] = "1"
            return response
        if isinstance(error, FastRedlockError):
            log.error("%s", error)  # with the masters' addresses, which no answer has
            return JsonResponse({"detail": "not done: try again later"}, status=503)
        return None


urlpatterns = [path("accounts/<int:account>/pay/<int:amount>", pay)]

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    sys.modules["django_app"] = sys.modules["__main__"]
    execute_from_command_line(sys.argv)
