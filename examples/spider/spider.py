"""A spider: takes a page from the queue, fetches it, and gives its links back as jobs, each URL once for ever."""

import os
import time
from html.parser import HTMLParser
from urllib.error import HTTPError, URLError
from urllib.parse import urldefrag, urljoin
from urllib.request import urlopen

from peerd.gateway.client import GatewayUnreachable, JobClient, JobConnectionLost, NoWork, TakenJob, connect

PORT = int(os.environ.get("GATEWAY_PORT", "11300"))
SITE = os.environ.get("SITE", "http://127.0.0.1:8081")
NAME = f"python {os.getpid()}"
LONGEST_URL = 200  # the longest unique key


class Links(HTMLParser):
    """The targets of the links of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def add_page(jobs: JobClient, url: str) -> None:
    """Put a page into the queue, unless it was ever there."""
    jobs.add_job({"url": url}, queue="pages", unique=url, unique_for="forever")


def visit(jobs: JobClient, job: TakenJob) -> None:
    """Fetch a page; its links become jobs before it is done, so that none is lost when this process dies."""
    url = job.value["url"]
    try:
        with urlopen(url, timeout=30) as answer:
            page = answer.read().decode()
    except HTTPError as error:
        is_for_good = error.code < 500
        jobs.fail(job, f"{error.code} {error.reason}", retry=False if is_for_good else None)
        return
    except (URLError, OSError) as error:
        jobs.fail(job, str(error))
        return
    links = {urldefrag(urljoin(url, link)).url for link in Links(page).found}
    inside = sorted(link for link in links if link.startswith(f"{SITE}/") and len(link) <= LONGEST_URL)
    for link in inside:
        add_page(jobs, link)
    jobs.notify(job, result={"url": url, "links": len(inside), "by": NAME})
    print(f"{NAME} has read {url}: {len(inside)} links", flush=True)


def crawl(jobs: JobClient) -> None:
    """Visit pages as long as the gateway is there; every spider begins with the same one."""
    add_page(jobs, f"{SITE}/")
    while True:
        try:
            job = jobs.get_job("pages", wait=30)
        except NoWork:
            continue
        visit(jobs, job)


while True:
    try:
        with connect(PORT) as connection:
            crawl(connection)
    except (GatewayUnreachable, JobConnectionLost) as error:
        print(f"{NAME}: {error}", flush=True)
        time.sleep(1)
