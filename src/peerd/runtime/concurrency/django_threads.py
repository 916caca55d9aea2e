"""Django's ORM in coroutines: each attempt has a thread, and so connections, of its own.

`sync_to_async`, and with it the ORM's own async methods, run in one thread of a process, unless there is a context that
has another one; Django makes such a context for each request, and closes old connections there. In a process of peerd
the one thread would keep its connection for months. When the server closes that, every later query of it fails.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def own_thread() -> Iterator[None]:
    """Let what the block gives to `sync_to_async` run in a thread of its own, whose connections are closed at the end.

    Nothing is done in a process that has not loaded asgiref.
    """
    if (asgiref := sys.modules.get("asgiref.sync")) is None:
        yield
        return
    context, sync_to_async = asgiref.ThreadSensitiveContext(), asgiref.SyncToAsync
    token = sync_to_async.thread_sensitive_context.set(context)
    try:
        yield
    finally:
        sync_to_async.thread_sensitive_context.reset(token)
        executor = sync_to_async.context_to_thread_executor.pop(context, None)
        if executor is not None:  # the thread may still be busy, with what was cancelled
            executor.submit(close_connections)
            executor.shutdown(wait=False)


def close_connections() -> None:
    """Close Django's connections of this thread, which ends: they would stay open until they are collected."""
    if (database := sys.modules.get("django.db")) is not None:
        with suppress(Exception):  # the server has closed it, or the settings have no database
            database.connections.close_all()
