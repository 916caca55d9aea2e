"""A rule as one test with a table: `rows` gives the test each row in turn, and names all that are wrong."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


def rows(names: str, table: Iterable[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As `pytest.mark.parametrize`, but in one test: its fixtures are made once, for all rows."""
    columns = [name.strip() for name in names.split(",")]
    values = [dict(zip(columns, row if len(columns) > 1 else (row,), strict=True)) for row in table]

    def of_test(test: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(test)
        fixtures = [one for name, one in signature.parameters.items() if name not in columns]

        @functools.wraps(test)
        def run(**given: Any) -> None:
            wrong = _Wrong()
            for row in values:
                with wrong.if_it_raises(row):
                    test(**given, **row)
            wrong.report()

        @functools.wraps(test)
        async def run_async(**given: Any) -> None:
            wrong = _Wrong()
            for row in values:
                with wrong.if_it_raises(row):
                    await test(**given, **row)
            wrong.report()

        wrapper: Any = run_async if inspect.iscoroutinefunction(test) else run
        wrapper.__signature__ = signature.replace(parameters=fixtures)
        return wrapper  # type: ignore[no-any-return]

    return of_test


class _Wrong:
    def __init__(self) -> None:
        self._found: list[tuple[dict[str, Any], BaseException]] = []

    @contextmanager
    def if_it_raises(self, row: dict[str, Any]) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the next row is tried
            self._found.append((row, error))
        except pytest.fail.Exception as error:
            if "DID NOT RAISE" not in str(error):  # but pytest-timeout ends the test, whose time is over
                raise
            self._found.append((row, error))

    def report(self) -> None:
        if self._found:
            text = "\n\n".join(f"{row}: {type(error).__name__}: {error}" for row, error in self._found)
            raise AssertionError(f"{len(self._found)} rows are wrong:\n{text}") from self._found[0][1]
