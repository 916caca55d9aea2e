"""The address of an operation in the REST API, which is declared with the operation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Literal

Answer = Literal["result", "nothing", "task", "count"]
"""What is answered: the result, no content, the task afterwards in full, or an object with the result as ``count``."""
_PATH_NAME: Final = re.compile(r"\{(\w+)(?::path)?\}")


@dataclass(frozen=True, kw_only=True)
class Rest:
    """The verb and the path of an operation below ``/api/v1``, and what differs there.

    The names in the path stand for the first arguments of the operation, in order. All others are in the query of a GET
    or DELETE, and in the body of any other verb.

    Attributes:
        verb: of HTTP.
        path: such as ``/tasks/{task_id}/cancel``; the value of ``{queue:path}`` may have slashes.
        name: of the route, from which the OpenAPI document has its ``operationId``; empty: the operation's own.
        status: of the answer.
        answer: what is answered.
        query: arguments that are in the query although the verb has a body.
        renamed: names of arguments by their names in the API.
        fixed: arguments that the API gives itself.
    """

    verb: str
    path: str
    name: str = ""
    status: HTTPStatus = HTTPStatus.OK
    answer: Answer = "result"
    query: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path_names(self) -> list[str]:
        """The names in the path.

        >>> rest("PUT /limits/{queue:path}").path_names
        ['queue']
        """
        return _PATH_NAME.findall(self.path)

    @property
    def has_body(self) -> bool:
        """Whether the verb has a body."""
        return self.verb not in {"GET", "DELETE"}


def rest(route: str, **more: Any) -> Rest:
    """The address of an operation.

    Args:
        route: verb and path.
        more: the other attributes of `Rest`. The status is 204 where nothing is answered.

    >>> rest("DELETE /tasks/{task_id}", answer="nothing").status
    <HTTPStatus.NO_CONTENT: 204>
    """
    verb, path = route.split(" ")
    if more.get("answer") == "nothing":
        more["status"] = HTTPStatus.NO_CONTENT
    return Rest(verb=verb, path=path, **more)
