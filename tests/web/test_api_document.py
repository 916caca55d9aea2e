"""The API keeps its own document, whatever it is sent: no 5xx, and no answer that is not documented."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

CASES = 4
"""Of each operation and mode."""
ENDLESS = "GET /api/v1/events"
"""Its answer does not end; it has tests of its own."""
LOWEST_PRIORITY = -(2**63) + 1
"""As a float it is one less, which the generator of the cases takes for allowed."""


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode), ids=str)
def test_every_operation_answers_as_documented(address: str, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_url(f"{address}/api/v1/openapi.json")
    found: list[Any] = [one.ok() for one in schema.get_all_operations() if isinstance(one, Ok)]
    operations = [operation for operation in found if operation.label != ENDLESS]
    assert len(operations) > 25
    failures: list[str] = []
    for operation in operations:
        if operation.path.endswith("/stream"):
            continue  # it need not end

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=CASES,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def check(case: Any) -> None:
            response = case.call_and_validate(excluded_checks=[positive_data_acceptance])
            is_refused = response.status_code == HTTPStatus.UNPROCESSABLE_ENTITY
            if mode is GenerationMode.POSITIVE and is_refused and str(LOWEST_PRIORITY) not in response.text:
                assert response.json()["code"] != "InvalidRequest", response.text  # of the schema; others say more

        try:
            check()
        except Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE  # it takes nothing that could be wrong
        except (Exception, FailureGroup) as error:  # noqa: BLE001 - of all operations, not of the first
            failures.append(f"{operation.label}: {error}")
    assert not failures, "\n\n".join(failures)
