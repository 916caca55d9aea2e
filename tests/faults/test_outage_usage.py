"""A short form of the outage that `make faults` watches for minutes."""

from __future__ import annotations

import pytest

from tests.faults import outage_usage
from tests.support.server import ServerUnavailableError
from tests.support.server_kinds import SERVERS
from tests.support.summary import note_database, note_missing_server


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(SERVERS))
def test_an_outage_costs_no_process_of_a_node_memory_or_processor_time(
    kind: str, request: pytest.FixtureRequest
) -> None:
    try:
        outage = outage_usage.run(kind, seconds=20.0)
    except ServerUnavailableError as error:
        note_missing_server(request.node, kind)
        pytest.skip(f"NOT TESTED on {kind}: {error}")
    note_database(request.node, kind)
    print(outage)  # noqa: T201 - pytest shows it with a failure
    assert not outage.problems, str(outage)
