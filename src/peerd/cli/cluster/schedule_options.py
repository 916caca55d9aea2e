"""The options of ``peerd schedules create``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from typer import Option

from peerd.cli.errors import EXIT_USAGE, CommandError
from peerd.operate.new_schedule import ScheduleFields


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions:
    """The fields of ``[schedules.NAME]``."""

    queue: Annotated[str, Option("--queue", "-q", metavar="QUEUE", help="The queue of the task.")]
    task: Annotated[str | None, Option(metavar="HANDLER", help="The handler of its tasks.")] = None
    body: Annotated[str | None, Option(metavar="JSON", help="The arguments of its handler.")] = None
    limit_key: Annotated[str | None, Option(metavar="KEY", help="Its key for limits.")] = None
    type: Annotated[str | None, Option(metavar="TYPE", help="cluster (the default), or worker: on each node.")] = None
    interval: Annotated[str | None, Option(metavar="DURATION", help="Between two ticks, such as 10m.")] = None
    cron: Annotated[str | None, Option(metavar="CRON", help="Five fields, or six with the seconds first.")] = None
    timezone: Annotated[str | None, Option(metavar="ZONE", help="Of --cron, such as Europe/Berlin.")] = None
    immediate: Annotated[bool, Option("--immediate", help="Tick at the start of the cluster, too.")] = False
    overlap: Annotated[str | None, Option(metavar="RULE", help="skip, queue or allow.")] = None
    misfire: Annotated[str | None, Option(metavar="RULE", help="skip or run_once.")] = None
    misfire_grace: Annotated[str | None, Option(metavar="DURATION", help="How late a tick may be.")] = None
    jitter: Annotated[str | None, Option(metavar="DURATION", help="Spread ticks over this time.")] = None
    disabled: Annotated[bool, Option("--disabled", help="Do not tick until it is created anew.")] = False

    def given(self) -> ScheduleFields:
        """The fields that were given."""
        names = ScheduleFields.__annotations__
        given: Any = {name: value for name in names if (value := getattr(self, name, None)) is not None}
        if self.body is not None:
            given["body"] = _parse_json(self.body)
        fields: ScheduleFields = given | {"enabled": not self.disabled}
        return fields


def _parse_json(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        remedy = """quote it as the shell needs it: '{"depth": 3}'"""
        raise CommandError(f"--body {text} is not JSON: {error}", remedy, status=EXIT_USAGE) from None
