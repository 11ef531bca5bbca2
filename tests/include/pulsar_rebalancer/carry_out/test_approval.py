"""Which plans need no person, and what names from Pulsar are in a text of Markdown."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.airflow_runs import make_run, move_row

from pulsar_rebalancer.carry_out.approval import approves_itself, code
from pulsar_rebalancer.config.settings import SelfApproval
from pulsar_rebalancer.run.manual_request import ByHand, parse_form
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.storage.layout import ClusterStorage

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
NIGHT, NOON = ({"cron": f"0 {hour} * * *", "minutes": 60} for hour in (0, 12))
BY_HAND = ByHand(by="ada", request=parse_form({"action": "unload", "bundles": ["t/n"]}))


@pytest.mark.parametrize(
    ("criteria", "changes", "expected"),
    [
        ({"max_bundles": 2}, {}, True),
        ({"max_bundles": 1}, {}, False),
        ({"min_gain": 40}, {}, True),  # from 10 to 70, predicted 20 to 40
        ({"min_gain": 41}, {}, False),
        ({"min_gain": 1}, {"predicted_max": None}, False),
        ({"window": NOON}, {}, True),
        ({"window": NIGHT}, {}, False),
        ({"max_bundles": 2, "min_gain": 40, "window": NOON}, {}, True),
        ({"max_bundles": 2, "min_gain": 40, "window": NIGHT}, {}, False),
        ({"max_bundles": 2}, {"by_hand": BY_HAND}, False),
        ({"max_bundles": 2}, {"bundles_split": 1}, False),
        (None, {}, False),
    ],
)
def test_a_plan_that_meets_every_criterion_needs_no_person(
    tmp_path: Path, criteria: dict[str, Any] | None, changes: dict[str, Any], expected: bool
) -> None:
    run = make_run(ClusterStorage(str(tmp_path), "east"), [move_row(n, "a:1", "b:1") for n in range(2)])
    summary = Summary.read(run).model_copy(update={"predicted_min": 20.0, "predicted_max": 40.0} | changes)

    given = None if criteria is None else SelfApproval.model_validate(criteria)

    assert approves_itself(given, summary, NOW) is expected


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("t/<script>alert(1)</script>", "` t/<script>alert(1)</script> `"),
        ("[x](http://evil)", "` [x](http://evil) `"),
        ("a`b``c", "``` a`b``c ```"),
        ("`", "`` ` ``"),
        ("one\n# two", "` one # two `"),
    ],
)
def test_a_name_is_text_and_nothing_else(name: str, shown: str) -> None:
    assert code(name) == shown
