"""What Prometheus reads from an address, as a test compares it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import httpx
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

parse_text: Any = parser.text_string_to_metric_families
parse_openmetrics: Any = openmetrics_parser.text_string_to_metric_families
Scraped = dict[str, float]
EVERY = 0.5


def series(metric: str, /, **labels: str) -> str:
    return f"{metric}{{{','.join(f'{label}={value}' for label, value in sorted(labels.items()))}}}"


def by_series(families: Any) -> Scraped:
    return {series(sample.name, **sample.labels): sample.value for family in families for sample in family.samples}


def scrape(port: int, path: str = "/metrics", accept: str = "") -> Scraped:
    headers = {"accept": accept} if accept else {}
    response = httpx.get(f"http://127.0.0.1:{port}{path}", headers=headers, timeout=60.0)
    assert response.status_code == 200, response.text
    is_open = "openmetrics" in response.headers["content-type"]
    return by_series(parse_openmetrics(response.text) if is_open else parse_text(response.text))


def has_reported(port: int, metric: str, /, *, at_least: float = 0.0, **labels: str) -> Callable[[], Scraped | None]:
    """A condition for `eventually`: what is scraped, once a series is in it and large enough."""

    def found() -> Scraped | None:
        scraped = scrape(port)
        return scraped if scraped.get(series(metric, **labels), -inf) >= at_least else None

    return found


def has_counted(port: int, metric: str, /, **labels: str) -> Callable[[], Scraped | None]:
    return has_reported(port, metric, at_least=1.0, **labels)
