"""A rule as one test with a table: `rows` gives the test each row in turn, and names all that are wrong."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
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
            with _collected() as collect:
                for row in values:
                    with collect(row):
                        test(**given, **row)

        @functools.wraps(test)
        async def run_async(**given: Any) -> None:
            with _collected() as collect:
                for row in values:
                    with collect(row):
                        await test(**given, **row)

        wrapper: Any = run_async if inspect.iscoroutinefunction(test) else run
        wrapper.__signature__ = signature.replace(parameters=fixtures)
        return wrapper  # type: ignore[no-any-return]

    return of_test


@contextmanager
def _collected() -> Iterator[Callable[[dict[str, Any]], AbstractContextManager[None]]]:
    wrong: list[tuple[dict[str, Any], BaseException]] = []

    @contextmanager
    def collect(row: dict[str, Any]) -> Iterator[None]:
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            if isinstance(error, pytest.fail.Exception) and "DID NOT RAISE" not in str(error):
                raise  # pytest-timeout ends the test, whose time is over
            wrong.append((row, error))

    yield collect
    if wrong:
        text = "\n\n".join(f"{row}: {type(error).__name__}: {error}" for row, error in wrong)
        raise AssertionError(f"{len(wrong)} rows are wrong:\n{text}") from wrong[0][1]
