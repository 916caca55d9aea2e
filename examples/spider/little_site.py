"""A small site to crawl: pages that link to each other in circles, one that is busy at first, and a link to nowhere."""

import os
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

SITE = os.environ.get("SITE", "http://127.0.0.1:8081")
PAGES = 60
SECONDS = 0.05  # that a page takes

has_been_busy = False


def links_of(number: int) -> list[str]:
    """Where a page leads: to others, to itself, out of the site; some links are written in two ways."""
    others = {2 * number, 2 * number + 1, number // 2, number * 7 % PAGES} - {0}
    inside = [f"/pages/{other}" for other in sorted(others) if other <= PAGES]
    return ["/", "#top", f"./{number}#again", "http://elsewhere.example/", *inside]


def page_at(path: str) -> str | None:
    """A page of the site; None if there is none."""
    if path == "/":
        links = ["/pages/1", "/busy", "/nowhere"]
    elif path == "/busy":
        links = ["/", "pages/2"]
    else:
        number = path.removeprefix("/pages/")
        if not (number.isdecimal() and 1 <= int(number) <= PAGES):
            return None
        links = links_of(int(number))
    return "<!doctype html><title>A page</title>" + "".join(f'<p><a href="{link}">{link}</a>' for link in links)


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    def do_GET(self) -> None:
        with suppress(ConnectionError):  # the spider was killed
            self.answer()

    def answer(self) -> None:
        global has_been_busy  # noqa: PLW0603 - it is all that this site remembers
        time.sleep(SECONDS)
        if self.path == "/busy" and not has_been_busy:
            has_been_busy = True
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        page = page_at(self.path)
        if page is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing: the spiders do."""


address = urlsplit(SITE)
ThreadingHTTPServer((address.hostname or "127.0.0.1", address.port or 80), Handler).serve_forever()
