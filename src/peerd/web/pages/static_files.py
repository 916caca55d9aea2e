"""The style sheet, the script and the icon of the pages: small, read once, and kept by browsers until they change."""

from __future__ import annotations

import hashlib
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Final

from starlette.responses import Response

MEDIA_TYPES: Final = {
    "peerd.css": "text/css; charset=utf-8",
    "peerd.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
FOR_EVER: Final = "public, max-age=31536000, immutable"
PATH: Final = "/static"


class StaticFiles:
    """The files by their names, which have a digest in their addresses."""

    @staticmethod
    def address(name: str) -> str:
        """Below the root of the app: ``/static/peerd.css?v=…``."""
        return f"{PATH}/{name}?v={_digest(name)}"

    @staticmethod
    def answer(name: str, version: str | None) -> Response:
        """A file. Only the address with its digest may be kept."""
        if name not in MEDIA_TYPES:
            return Response("there is no such file", HTTPStatus.NOT_FOUND, media_type="text/plain")
        keep = FOR_EVER if version == _digest(name) else "no-cache"
        headers = {"cache-control": keep, "content-type": MEDIA_TYPES[name]}
        return Response(_content(name), headers=headers)


@cache
def _content(name: str) -> bytes:
    return (files("peerd.web.pages") / "static" / name).read_bytes()


@cache
def _digest(name: str) -> str:
    return hashlib.blake2b(_content(name), digest_size=8).hexdigest()
