"""Files: the buckets, what is in one, one file, and its content."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from starlette.responses import Response

from peerd.domain.errors import PeerdError
from peerd.web.downloads import content_response
from peerd.web.pages.errors import error_page, plain_error_page
from peerd.web.pages.file_actions import folder_of, list_address
from peerd.web.pages.headers import FILE_HEADERS
from peerd.web.pages.rendering import PageRequest
from peerd.web.pages.subjects import Subject
from peerd.web.problems import STATUS_OF

PAGE_SIZE: Final = 100
MOST_FOLDERS: Final = 20
"""Folders of a key that are links."""
VIEWS: Final = {"folders": "Folders", "keys": "All keys"}
LIVE: Final = "type=task&queue=storage"
"""Tasks of storage that begin and end show that copies have changed."""


async def show_buckets(page: PageRequest) -> Response:
    """All buckets."""
    buckets = await page.read("buckets", page.client.buckets.list)
    return page.render("buckets.html", "Files", buckets=buckets, live=LIVE)


async def show_files(page: PageRequest) -> Response:
    """A page of the files of a bucket."""
    bucket, prefix = page.query.get("bucket", "") or "", page.query.get("prefix", "") or ""
    after, view = page.query.get("after", "") or "", page.query.get("view", "folders")
    view = view if view in VIEWS else "folders"
    delimiter = "/" if view == "folders" else ""
    found = await page.read(
        ("files", bucket, prefix, after, delimiter),
        lambda: page.client.files.kept(bucket, prefix, after=after, delimiter=delimiter, limit=PAGE_SIZE),
    )
    return page.render(
        "files.html",
        f"Files of {bucket[:60]}",
        bucket=bucket,
        prefix=prefix,
        found=found,
        folders=folders_of(bucket, prefix),
        view=view,
        views=VIEWS,
        folder=folder_of(prefix),
        list_address=list_address,
        live="" if after else LIVE,
    )


async def show_file(page: PageRequest) -> Response:
    """One file and its copies."""
    path = page.query.get("name", "") or ""
    status = await page.read(("file", path), lambda: page.client.files.stat(path))
    return page.render(
        "file.html",
        f"File {path[-60:]}",
        path_of_file=path,
        status=status,
        file=status.file,
        folders=folders_of(status.file.bucket, folder_of(status.file.key)),
        name_in_folder=status.file.key[len(folder_of(status.file.key)) :] or status.file.key,
        actions=page.actions.of(Subject.FILE, page.actor, "verify", "delete"),
        live=LIVE,
    )


async def download_file(page: PageRequest) -> Response:
    """The content of a file; nodes verify what they send, and a file that is damaged everywhere is cut off."""
    path = page.query.get("name", "") or ""
    name = path.rstrip("/").rpartition("/")[2] or "file"
    headers = {  # a file is saved and never shown: it may be anything, and what it says of itself is not believed
        **FILE_HEADERS,
        "content-type": "application/octet-stream",
        "content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "x-content-type-options": "nosniff",
    }
    try:
        return await content_response(page.request, await page.client.files.open(path), headers)
    except PeerdError as error:
        if any(kind in STATUS_OF for kind in type(error).__mro__):
            return error_page(page, error)
        return plain_error_page(page, HTTPStatus.SERVICE_UNAVAILABLE, str(error))


def folders_of(bucket: str, prefix: str) -> list[tuple[str, str]]:
    """The folders above, with their addresses, the bucket first.

    >>> folders_of("films", "2026/raw/")
    [('films', '/files/list?bucket=films'), ('2026/', '/files/list?bucket=films&prefix=2026%2F'), \
('raw/', '/files/list?bucket=films&prefix=2026%2Fraw%2F')]
    """
    found = [(bucket, list_address(bucket))]
    end = 0
    while (slash := prefix.find("/", end)) >= 0 and len(found) <= MOST_FOLDERS:
        found.append((prefix[end : slash + 1], list_address(bucket, prefix[: slash + 1])))
        end = slash + 1
    return found
