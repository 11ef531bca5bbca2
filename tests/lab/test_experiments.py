"""Experiments from file to report, and the cases that were worked by hand when the strategies were compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from lab.experiments.__main__ import main
from lab.experiments.measures import Recorder
from lab.experiments.results import read
from lab.experiments.run import Run, run
from lab.experiments.scenario import Scenario, load_all
from lab.experiments.variants import VARIANTS, Variant, baseline_of, from_outside
from tests.lab.test_scenarios import SOUND, scenario

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.balancer import Balancer, IndexedMove
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.strategies.kept import ShedderState
from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample, SheddingResult

if TYPE_CHECKING:
    from pathlib import Path

    from pulsar_rebalancer.replay.minute import Minute

SCENARIOS = load_all()
AVG, AVG_DEFAULT, _, THRESHOLD, UNIFORM, _, OVERLOAD, TRANSFER, GAIN, *BASELINES = VARIANTS


def one_run(name: str, variant: object) -> Run:
    return run(SCENARIOS[name], variant, 1)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Turn(ShedderState):
    """State of its own: how often it was asked."""

    asked: int = 0


def every_third(sample: ClusterSample, kept: ShedderState) -> SheddingResult:
    """A shedder from outside: each third run the first broker gives one bundle to the second."""
    asked = kept.asked + 1 if isinstance(kept, Turn) else 1
    moves = []
    source, destination = (broker.broker for broker in sample.taking_part[:2])
    if asked % 3 == 0:
        free = [bundle for bundle in sample.bundles.of(source) if bundle.reason is None][:1]
        moves = [
            CandidateMove.of(bundle, pair=0, rank=0, measure=Measure.RATE, reason=Reason.TAKEN, destination=destination)
            for bundle in free
        ]
    return SheddingResult([], moves, Turn(asked=asked), "")


def breaking_down(sample: ClusterSample, kept: ShedderState) -> SheddingResult:
    """A shedder from outside that ends in its second minute."""
    if isinstance(kept, Turn):
        raise SystemExit("worn\nout")
    return SheddingResult([], [], Turn(asked=1), "")


def refusing(sample: ClusterSample, kept: ShedderState) -> SheddingResult:
    """A shedder from outside that raises an error at once."""
    raise ValueError("no brokers")


def test_from_files_to_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SOUND.replace('placed = "even"', 'placed = "load"\nload = [80, 10]').replace("count = 4", "count = 20")
    scenario(tmp_path, text)
    command = ["--seeds", "2", "--processes", "2", "--scenarios", str(tmp_path)]
    for shedder in (breaking_down, refusing, every_third):
        command += ["--strategy", f"{__name__}:{shedder.__name__}"]
    files = [tmp_path / folder / "results" / "mine.json" for folder in ("first", "again")]
    for folder in ("first", "again"):
        assert main([*command, "--output", str(tmp_path / folder)]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    # What raises an exception costs only its own row.
    failures = f"mine, {__name__}:breaking_down: minute 1: SystemExit: worn out\n"
    failures += f"mine, {__name__}:refusing: minute 0: ValueError: no brokers\n"
    assert capsys.readouterr().err == failures * 2
    measures = read(files[0]).measures
    assert [len(rows) for rows in measures.values()] == [2] * (len(VARIANTS) + 1)
    moved = {variant: rows[0].bundles_moved for variant, rows in measures.items()}
    assert not any(moved[variant.name] for variant in BASELINES)
    assert moved["AvgShedder"] > 0
    assert moved[f"{__name__}:every_third"] == 20 // 3
    report = (tmp_path / "first" / "report.md").read_text()
    assert "## t\n" in report
    assert f"| {__name__}:every_third | {20 // 3} | {20 // 3} |" in report


def test_a_score_with_history_goes_on_unloading() -> None:
    once, again = one_run("by_hand_history_score", AVG).measures, one_run("by_hand_history_score", THRESHOLD).measures
    assert once.unload_events == 1
    assert once.range_end < 5
    assert again.unload_events > 3
    assert again.overshoots > 0


def test_where_threshold_shedder_is_stuck() -> None:
    assert one_run("by_hand_one_idle", THRESHOLD).measures.bundles_moved == 0
    assert one_run("by_hand_one_idle", AVG).measures.bundles_moved > 0


def test_traffic_says_nothing_of_other_processes() -> None:
    uniform, avg = (one_run("by_hand_other_processes", variant).measures for variant in (UNIFORM, AVG))
    assert uniform.largest_end > avg.largest_end + 5


def test_no_candidate_below_the_mean_is_a_draw_among_all() -> None:
    assert one_run("by_hand_no_candidate", THRESHOLD).measures.hot_placements > 0
    assert one_run("by_hand_no_candidate", AVG).measures.hot_placements == 0


def test_bundles_that_lost_their_broker_are_placed_by_the_variant() -> None:
    # Ended before a shedder acts: what brokers carry then is the work of the placement alone.
    placed = short("one_broker_stopped", 34).model_copy(update={"disturbed_at": 32})
    by_rate, drawn = ([run(placed, variant, seed).measures for seed in range(1, 6)] for variant in (UNIFORM, AVG))
    assert not any(each.bundles_moved for each in (*by_rate, *drawn))
    assert np.mean([each.range_mean for each in by_rate]) + 2 < np.mean([each.range_mean for each in drawn])


def test_each_placement_that_is_compared_has_a_row_without_shedding() -> None:
    assert {variant.baseline for variant in VARIANTS} == {variant.name for variant in BASELINES}
    assert all(variant.baseline == variant.name for variant in BASELINES)
    assert GAIN.baseline == AVG.baseline
    compared = (AVG, UNIFORM, THRESHOLD, TRANSFER)
    assert [baseline_of(variant.name) for variant in compared] == [variant.name for variant in BASELINES]
    # Without a move the placements end as far apart as they place: AvgShedder's draws, the one by rate counts.
    avg, rate = (one_run("cold_start", variant).measures for variant in BASELINES[:2])
    assert avg.bundles_moved == rate.bundles_moved == 0
    assert avg.range_end > 2 * rate.range_end


def to_and_fro(sample: ClusterSample, kept: ShedderState) -> SheddingResult:
    """A shedder that moves the first bundle of the cluster from broker to broker whenever it may."""
    names = [broker.broker for broker in sample.taking_part]
    first = min((bundle for name in names for bundle in sample.bundles.of(name)), key=lambda bundle: bundle.bundle)
    destination = next(name for name in names if name != first.broker)
    move = CandidateMove.of(first, pair=0, rank=0, measure=Measure.RATE, reason=Reason.TAKEN, destination=destination)
    return SheddingResult([], [] if first.reason else [move], kept, "")


def test_a_bundle_that_moved_stays_for_the_grace_period() -> None:
    moved = run(short("by_hand_history_score", 100), from_outside(f"{__name__}:to_and_fro"), 1).curve.unloads
    assert THRESHOLD.settings.grace_period_minutes == 30
    assert moved == [0, 31, 62, 93]


def short(name: str, minutes: int) -> Scenario:
    return SCENARIOS[name].model_copy(update={"minutes": minutes})


def few_and_unequal(name: str) -> Scenario:
    given = SCENARIOS[name]
    groups = (group.model_copy(update={"count": 12, "spread": 1.2}) for group in given.bundles)
    return given.model_copy(update={"bundles": tuple(groups), "minutes": 30})


@pytest.mark.parametrize(
    ("given", "variant", "declares"),
    [(SCENARIOS["by_hand_no_candidate"], THRESHOLD, False), (few_and_unequal("by_hand_history_score"), TRANSFER, True)],
    ids=["ThresholdShedder", "TransferShedder"],
)
def test_only_what_transfer_shedder_takes_in_return_is_a_swap(
    given: Scenario, variant: Variant, declares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Within a minute bundles go from A to B and others from B to A: because the placement of both brokers' bundles drew
    # the other hot one, the PIP's example of over-placement, or because TransferShedder takes some back.
    back_and_forth: list[bool] = []
    counted: list[int] = []
    decide, placed = Balancer.decide, Recorder.placed

    def noted(balancer: Balancer, minute: Minute) -> list[IndexedMove]:
        moves = decide(balancer, minute)
        ways = [(int(minute.owner[move.bundle]), move.destination) for move in moves]
        forth = {way for way, move in zip(ways, moves, strict=True) if not move.swapped}
        for (source, destination), move in zip(ways, moves, strict=True):
            if (destination, source) in ways:
                back_and_forth.append(move.swapped)
                assert move.swapped == (declares and (destination, source) in forth)
            counted.extend([destination] * (not move.swapped))
        return moves

    def judged(recorder: Recorder, destination: int, *others: Any) -> None:
        counted.remove(destination)
        placed(recorder, destination, *others)

    monkeypatch.setattr(Balancer, "decide", noted)
    monkeypatch.setattr(Recorder, "placed", judged)
    for seed in (1, 2):
        run(given, variant, seed)
    assert back_and_forth
    assert any(back_and_forth) == declares
    assert not counted
