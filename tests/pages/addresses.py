"""An address of each page, for tests that visit all of them. A test compares them with the routes."""

from __future__ import annotations

from typing import Final

from starlette.routing import Route

from peerd.web import create_app

NODE: Final = "node <b>&'\" 1"
QUEUE: Final = "video"
SCHEDULE: Final = "nightly"
FILE: Final = "films/2026/one.mov"
ADDRESSES: Final = {
    "/": "/?span=1d&by=queue",
    "/login": "/login?next=/tasks",
    "/account": "/account",
    "/tasks": "/tasks?status=pending&where=priority>=0&column=status&column=progress&column=unique_key",
    "/tasks/find": "/tasks/find?q=1",
    "/tasks/export.{form:str}": "/tasks/export.csv?queue=video",
    "/errors": "/errors?span=7d",
    "/handlers": "/handlers?against=7d",
    "/logs": "/logs?text=began",
    "/tasks/{key:id}": "/tasks/1",
    "/tasks/{key:id}/stack": "/tasks/1/stack",
    "/tasks/{key:id}/preview/{number:id}": "/tasks/1/preview/0",
    "/tasks/{key:id}/download/body": "/tasks/1/download/body",
    "/tasks/{key:id}/download/result": "/tasks/1/download/result",
    "/bulk": "/bulk",
    "/bulk/new": "/bulk/new?status=pending&verb=cancel",
    "/bulk/{key:id}": "/bulk/1",
    "/queues": "/queues",
    "/queues/show": f"/queues/show?name={QUEUE}",
    "/limits": "/limits",
    "/nodes": "/nodes",
    "/nodes/show": "/nodes/show?name=node%20%3Cb%3E%26'%22%201",
    "/nodes/state": "/nodes/state?name=node%20%3Cb%3E%26'%22%201",
    "/nodes/request/{key:id}": "/nodes/request/1",
    "/processes": "/processes?ended=1",
    "/schedules": "/schedules",
    "/schedules/show": f"/schedules/show?name={SCHEDULE}",
    "/storage": "/storage?health=at-risk",
    "/files": "/files",
    "/files/list": "/files/list?bucket=films&prefix=2026/",
    "/files/show": f"/files/show?name={FILE}",
    "/files/download": f"/files/download?name={FILE}",
    "/disks": "/disks",
    "/disks/{key:id}": "/disks/1",
    "/alerts": "/alerts?shown=on",
    "/users": "/users",
    "/tokens": "/tokens",
    "/tokens/new": "/tokens/new",
    "/audit": "/audit?target=task&key=1",
}
"""By the path of the route; those of actions are made from the actions."""
ASK_A_NODE: Final = frozenset(
    {"/nodes/state", "/nodes/request/{key:id}", "/tasks/{key:id}/preview/{number:id}", "/files/download"}
)
"""Tests with running nodes, and with files, visit them."""
FOR_ADMINS: Final = ("/users", "/tokens", "/tokens/new", "/audit")


def routes_of(kind: str) -> set[str]:
    """The paths of all pages, or of all forms."""
    routes = [route for route in create_app().routes if isinstance(route, Route)]
    return {route.path for route in routes if route.name.startswith(f"{kind} ")}
