"""Mode `approve`, through the real DAGs: nothing moves until a person says so, and then that very plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.airflow_world import Outcome, World, world

from pulsar_rebalancer.run.outcome import Outcome as Written
from pulsar_rebalancer.run.plan import Summary, read_moves

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration

FORCE: dict[str, Any] = {"force": "a broker was added", "force_threshold": 5, "max_bundles_per_run": 2}


@pytest.fixture(scope="module")
def wise(tmp_path_factory: pytest.TempPathFactory, one_session: None) -> Iterator[World]:
    given = {"mode": "approve", "state_max_gap": 1000, "max_plan_age_seconds": 3600, "overloaded_threshold": 100}
    with world("wise", tmp_path_factory.mktemp("wise"), **given) as made:
        yield made


def ends(run: Outcome) -> list[tuple[str, str, str]]:
    return sorted((move.bundle, move.source, move.destination) for move in read_moves(run.folder))


def test_a_plan_is_carried_out_once_a_person_approves_it(wise: World) -> None:
    asking = wise.run(**FORCE)
    assert (asking.xcom("gate", "reason"), asking.states["unload"]) == ("awaiting_approval", "skipped")
    (older,) = wise.queued("apply")

    # A newer plan takes its place, in a run of its own: what Airflow shows of a question is the plan that is approved.
    wise.begin(older, "apply", last="approve")
    newer = wise.run(**FORCE)
    assert newer.xcom("gate", "reason") == "awaiting_approval"
    (question,) = wise.queued("apply")
    parked = wise.begin(question, "apply", last="approve")
    assert parked.xcom("show")["plan"] == Summary.read(newer.folder).hash
    assert f"plan `{Summary.read(newer.folder).hash[:16]}`" in wise.asked(question)
    # The older question ends without an answer.
    ended = wise.begin(older, "apply")
    assert (ended.state, ended.states["approve"], ended.states["carry_out"]) == ("success", "skipped", "skipped")

    answered = wise.answer(question, "Approve")
    assert (answered.state, answered.states["carry_out"]) == ("success", "success")
    (approved,) = wise.queued()
    done = wise.begin(approved)

    moves = read_moves(newer.folder)
    assert len(moves) == 2
    summary = Summary.read(done.folder)
    assert summary.bundles_passed_over == {}
    assert ends(done) == ends(newer)
    assert Written.read(done.folder).counts == {"moved": len(moves)}
    assert summary.by_hand is not None
    assert summary.by_hand.by == "ada"
    assert all(wise.served.cluster.owner(move.bundle) == move.destination for move in moves)

    # Rejected, nothing is handed over.
    assert wise.run(**FORCE).xcom("gate", "reason") == "awaiting_approval"
    (question,) = wise.queued("apply")
    wise.begin(question, "apply", last="approve")
    assert wise.answer(question, "Reject").states["carry_out"] == "skipped"
    assert wise.queued() == []
