"""One word and one sentence for whatever a cluster may be in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.overview_scene import Scene, broker, history, uneven

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.control.documents import Control, PauseOrder
from pulsar_rebalancer.overview import overview
from pulsar_rebalancer.overview.model import AirflowFacts
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.request import Finding
from pulsar_rebalancer.state.by_hand import Drain, Drains

if TYPE_CHECKING:
    from pathlib import Path

    from pulsar_rebalancer.overview.model import Overview, Status

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
JUST_NOW = NOW - timedelta(seconds=30)
EVEN = {broker(number): 40.0 + number for number in range(4)}


def scene(tmp_path: Path, brokers: int = 4, *, loads: dict[str, float] | None = None, **settings: Any) -> Scene:
    return Scene(str(tmp_path), loads or uneven(brokers), **settings)


def seen(made: Scene, *, paused: bool = False, error: str = "", control: Control | None = None) -> Overview:
    entry = ClusterEntry(name="east", given={}, settings=made.settings, error=error)
    schedule = AirflowFacts(paused=paused, next_run_at=NOW + timedelta(seconds=30), control=control or Control())
    found = overview.present(made.storage, entry, schedule, NOW)
    assert overview.status(made.storage, entry, schedule, NOW) == found.status
    return found


def strip(made: Scene, **more: Any) -> Status:
    return seen(made, **more).status


def test_without_a_run_there_is_no_data(tmp_path: Path) -> None:
    found = strip(scene(tmp_path))
    assert (found.state, found.collected_at, found.score_range) == ("no data", None, None)
    assert "unpause it" in strip(scene(tmp_path), paused=True).sentence


def test_a_broken_entry_says_what_is_wrong(tmp_path: Path) -> None:
    found = strip(scene(tmp_path), error="clusters.yaml: east: modes: unknown")
    assert (found.state, found.tone, found.sentence) == ("broken", "bad", "clusters.yaml: east: modes: unknown")


def test_a_pair_says_how_far_it_is_from_firing(tmp_path: Path) -> None:
    made = scene(tmp_path, loads=uneven(4, hottest=55, coldest=30))
    history(made, JUST_NOW, 5)

    found = strip(made)

    assert found.state == "waiting"
    # Three more samples, one a minute, the last of which was half a minute ago.
    assert found.sentence == "broker-2 and broker-3 are 29 apart, hit 5 of 8, fires in about 2 minutes."
    assert found.next_run_at == NOW + timedelta(seconds=30)


def test_a_high_gap_counts_its_high_hits(tmp_path: Path) -> None:
    made = scene(tmp_path)
    made.run(JUST_NOW)
    assert "hit 1 of 2, fires in about 30 seconds" in strip(made).sentence


@pytest.mark.parametrize(
    ("mode", "verdict", "state", "said"),
    [
        ("auto", None, "moved", "Moved 4 bundles, each verified on its new broker."),
        ("observe", None, "would move", "Would move 4 bundles, but mode observe moves nothing."),
        ("approve", Reason.AWAITING_APPROVAL, "would move", "A plan to move 4 bundles waits for a person's approval."),
        ("auto", Reason.PAUSED, "paused", "A plan to move 4 bundles was not carried out: "),
        ("auto", Reason.OVER_CAP, "held back", "A plan to move 4 bundles was not carried out: "),
    ],
)
def test_a_plan_says_what_became_of_it(
    tmp_path: Path, mode: str, verdict: Reason | None, state: str, said: str
) -> None:
    made = scene(tmp_path, mode=mode)
    made.run(JUST_NOW - timedelta(minutes=1))
    made.run(JUST_NOW, verdict=verdict)

    found = strip(made)

    assert (found.state, found.sentence[: len(said)]) == (state, said)
    if verdict not in (None, Reason.AWAITING_APPROVAL):
        assert verdict.meaning in found.sentence


def test_a_hold_is_named(tmp_path: Path) -> None:
    made = scene(tmp_path)
    made.findings = (Finding(reason=Reason.BUILTIN_SHEDDING_ON),)
    made.run(JUST_NOW - timedelta(minutes=1))
    made.run(JUST_NOW, verdict=Reason.ON_HOLD)
    assert Reason.BUILTIN_SHEDDING_ON.meaning in strip(made).sentence


def test_moves_that_went_wrong_are_told(tmp_path: Path) -> None:
    made = scene(tmp_path)
    made.run(JUST_NOW - timedelta(minutes=1))
    made.run(JUST_NOW, astray=1)

    found = seen(made)

    assert (found.status.state, found.status.tone) == ("held back", "warn")
    assert found.status.sentence == f"Moved 3 of 4 bundles: {Reason.UNOWNED.meaning}"
    assert found.plan is not None
    assert (found.plan.done, found.plan.failed, found.plan.moves[0].outcome) == (4, 1, "unowned")


def test_a_run_that_moves_bundles_says_how_many_are_done(tmp_path: Path) -> None:
    made = scene(tmp_path)
    made.run(JUST_NOW - timedelta(minutes=1))
    made.run(JUST_NOW, seconds=0)

    found = seen(made)

    assert (found.status.state, found.status.sentence) == ("moving", "Moving 4 bundles: 2 done so far.")
    assert found.plan is not None
    assert (found.plan.done, found.plan.bundles, found.plan.ended_at) == (2, 4, None)


def test_a_failed_validation_is_told_in_plain_words(tmp_path: Path) -> None:
    made = scene(tmp_path)
    made.findings = (Finding(reason=Reason.TOO_FEW_BROKERS, detail="1 of 4"),)
    made.run(JUST_NOW)

    found = seen(made)

    assert (found.status.state, found.status.tone) == ("blocked", "bad")
    assert found.status.sentence == f"Validation failed: {Reason.TOO_FEW_BROKERS.meaning} 1 of 4."
    (told,) = found.findings
    assert (told.reason, told.effect, told.action) == ("too_few_brokers", "block", Reason.TOO_FEW_BROKERS.action)
    assert found.brokers  # what was collected is shown all the same


def test_brokers_that_are_close_are_balanced(tmp_path: Path) -> None:
    made = scene(tmp_path, loads=EVEN)
    made.run(JUST_NOW)
    found = strip(made)
    assert (found.state, found.tone) == ("balanced", "good")
    assert found.sentence.startswith("4 brokers are within ")


def test_one_broker_has_nobody_to_share_with(tmp_path: Path) -> None:
    made = scene(tmp_path, loads={broker(0): 90.0})
    made.run(JUST_NOW)
    assert strip(made).sentence.startswith("One broker takes part")


@pytest.mark.parametrize(("minutes", "state"), [(4, "balanced"), (6, "stale")])
def test_old_data_is_stale(tmp_path: Path, minutes: int, state: str) -> None:
    made = scene(tmp_path, loads=EVEN)
    made.run(NOW - timedelta(minutes=minutes))
    found = strip(made)
    assert found.state == state
    if state == "stale":
        assert found.sentence == "No run has looked at the cluster for 6 minutes."


def test_a_paused_dag_is_told(tmp_path: Path) -> None:
    made = scene(tmp_path)
    made.run(JUST_NOW)
    found = strip(made, paused=True)
    assert (found.state, found.next_run_at) == ("paused", None)
    assert "paused in Airflow" in found.sentence


def test_a_mode_that_is_off_is_told(tmp_path: Path) -> None:
    assert strip(scene(tmp_path, mode="off")).state == "off"


def test_one_run_is_told_as_it_was(tmp_path: Path) -> None:
    made = scene(tmp_path)
    folder = made.run(NOW - timedelta(hours=2))
    made.run(JUST_NOW)
    entry = ClusterEntry(name="east", given={}, settings=Settings(mode="auto"))

    found = overview.of_one_run(made.storage, entry, folder, NOW)

    assert found is not None
    assert (found.of_one_run, found.folder, found.status.state) == (True, folder.name, "waiting")
    assert "hit 1 of 2, fires in about 1 minute" in found.status.sentence.replace("60 seconds", "1 minute")
    assert found.pairs[0].seconds_to_fire == 60
    assert overview.of_one_run(made.storage, entry, made.storage.new_run(NOW), NOW) is None


def ordered(made: Scene, **more: Any) -> str:
    made.run(JUST_NOW)
    return strip(made, **more).in_force


def test_what_people_ordered_is_one_sentence_beside_the_state(tmp_path: Path) -> None:
    made = scene(tmp_path, loads=EVEN)
    assert ordered(made) == ""

    pause = PauseOrder(at=NOW, by="ada", reason="a holiday", until=NOW + timedelta(hours=1))
    said = "Nothing is moved: mode auto; paused until 2026-11-22 13:00 UTC by ada: a holiday."
    assert ordered(made, control=Control(pause=pause)) == said
    held = strip(made, control=Control(pause=pause))
    assert (held.state, held.sentence[:17]) == ("paused", "Nothing is moved.")

    drain = Drain(at=NOW, by="bob", reason="a new disk")
    made.storage.drains.write_json(Drains(brokers={broker(0): drain}).model_dump(mode="json"))
    assert f"{broker(0)} drained by bob: a new disk" in ordered(made)
    assert "what people ordered cannot be read: damaged" in ordered(made, control=Control(unreadable="damaged"))


def test_a_mode_that_observes_is_not_told_twice(tmp_path: Path) -> None:
    assert ordered(scene(tmp_path, loads=EVEN, mode="observe")) == ""
