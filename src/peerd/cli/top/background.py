"""Calls that wait for a database or a server, in threads: the screen never waits."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TypeVar

from textual.app import App
from textual.screen import Screen

from peerd.cli.errors import CommandError, to_command_error

T = TypeVar("T")
U = TypeVar("U")


def run_in_background(
    call: Callable[[], T],
    then: Callable[[T], None],
    failed: Callable[[CommandError], None],
    receiver: App[None] | Screen[None],
) -> None:
    """Call a function in a thread, and give its result to the receiver's event loop; a closed receiver gets nothing.

    The thread is a daemon. Textual's own threads are joined at the end, so that an application that waits for a
    database which does not answer could not be quit.

    Args:
        call: what is done; it may wait.
        then: gets the result.
        failed: gets an expected error. Any other error ends the application, with its traceback.
        receiver: the application or screen that calls ``then`` and ``failed``.
    """

    def deliver(function: Callable[[U], None], value: U) -> None:
        if receiver.app.is_running:  # its widgets are removed, one by one, before it stops to receive
            function(value)

    def run() -> None:
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - the receiver raises what is not expected
            failure = to_command_error(error)
            if failure is None:
                receiver.call_later(_reraise, error)
            else:
                receiver.call_later(deliver, failed, failure)
        else:
            receiver.call_later(deliver, then, result)

    Thread(target=run, name="peerd-top", daemon=True).start()


def _reraise(error: Exception) -> None:
    raise error
