from pathlib import Path
from typing import Any

import pytest
from tests.include.pulsar_rebalancer.replay.recorded import CLUSTER, FOUR, Run, made, minute, recorded, settings

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.balancer import Balancer
from pulsar_rebalancer.replay.closed_loop import replay
from pulsar_rebalancer.replay.minute import Minute
from pulsar_rebalancer.replay.recording import minute_of
from pulsar_rebalancer.replay.samples import Recording
from pulsar_rebalancer.replay.variant_outcome import VariantOutcome
from pulsar_rebalancer.replay.variants import CURRENT_VARIANT, Variant
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.state import WHOLE_CLUSTER, HitCount, ShedderState
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample, SheddingResult
from pulsar_rebalancer.strategies.shedders.registry import STRATEGIES_VARIABLE

A, B, C = "a:8080", "b:8080", "c:8080"
HOT = Run(
    {A: 80, B: 20}, {A: dict(zip(FOUR, (400, 200, 100, 100), strict=True)), B: {"t/o/0x00000000_0xffffffff": 200}}
)


@pytest.fixture(autouse=True)
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    shedders = ("nothing", "first_bundle_to_b", "without_memory", "there_and_back", "means_seen", *RAISING)
    monkeypatch.setenv(STRATEGIES_VARIABLE, ",".join(f"{__name__}:{name}" for name in shedders))


def nothing(sample: ClusterSample, state: ShedderState) -> SheddingResult:
    return SheddingResult([], [], state, "")


def first_bundle_to_b(sample: ClusterSample, state: ShedderState) -> SheddingResult:
    """Once, in the first sample: the busiest bundle of the first broker goes to the second."""
    moves = []
    busiest = max(sample.bundles.of_broker(A), key=lambda bundle: bundle.msg_rate, default=None)
    if not state.hits and busiest is not None:
        moves = [CandidateMove.new(busiest, pair=0, rank=0, measure=Measure.RATE, reason=Reason.TAKEN, destination=B)]
        state = type(state)(hits={A: None})  # type: ignore[dict-item]
    return SheddingResult([], moves, state, "")


def without_memory(sample: ClusterSample, state: ShedderState) -> SheddingResult:
    measured = any(broker.resources["memory"] != (None, None) for broker in sample.brokers)
    return nothing(sample, state) if measured else first_bundle_to_b(sample, state)


def there_and_back(sample: ClusterSample, state: ShedderState) -> SheddingResult:
    """The first bundle to the second broker at once, and back after four minutes if it may."""
    asked = state.cluster_hits
    source, destination = (A, B) if asked == 0 else (B, A)
    held = [bundle for bundle in sample.bundles.of_broker(source) if bundle.bundle == FOUR[0] and bundle.reason is None]
    moves = [
        CandidateMove.new(bundle, pair=0, rank=0, measure=Measure.RATE, reason=Reason.TAKEN, destination=destination)
        for bundle in held
        if asked in (0, 4)
    ]
    return SheddingResult([], moves, type(state)(hits={WHOLE_CLUSTER: HitCount(low=asked + 1)}), "")


def fails_later(sample: ClusterSample, state: ShedderState) -> SheddingResult:
    if state.cluster_hits == 2:
        raise ZeroDivisionError("no load\n\x1b[31m\u202e at all")
    hits = {WHOLE_CLUSTER: HitCount(low=state.cluster_hits + 1)}
    return SheddingResult([], [], type(state)(hits=hits), "")


def ends_the_process(sample: ClusterSample, state: ShedderState) -> SheddingResult:
    raise SystemExit(3)


def interrupts(sample: ClusterSample, state: ShedderState) -> SheddingResult:
    raise KeyboardInterrupt


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def raises_what_has_no_text(sample: ClusterSample, state: ShedderState) -> SheddingResult:
    raise Unprintable


def returns_nothing(sample: ClusterSample, state: ShedderState) -> None:
    return None


RAISING = {
    "fails_later": (2, "ZeroDivisionError: no load  [31m at all"),
    "ends_the_process": (0, "SystemExit: 3"),
    "interrupts": (0, "KeyboardInterrupt"),
    "raises_what_has_no_text": (0, f"{__name__}.Unprintable: <exception str() failed>"),
    "returns_nothing": (0, "AttributeError: 'NoneType' object has no attribute"),
}
"""Shedders that do not end well, by name: at which sample, and with which error."""


def outcome(recording: Recording, path: str = "", /, **values: Any) -> VariantOutcome:
    chosen = settings(**({"strategy": f"{__name__}:{path}"} if path else {}), **values)
    return replay(recording, [Variant("it", chosen)], chosen)[0]


def test_a_moved_bundle_takes_its_part_of_the_load_along(tmp_path: Path) -> None:
    found = outcome(recorded(tmp_path, dict.fromkeys(range(4), HOT)), "first_bundle_to_b")
    # 400 of 800 messages are half of 80 percent.
    assert found.score_ranges == pytest.approx([60, 20, 20, 20], abs=1e-4)
    assert (found.moved_count, found.samples_with_moves, found.disturbed_throughput) == (1, 1, 40_000)


def test_a_moved_bundle_takes_the_cpu_that_goes_up_and_down_with_its_messages(tmp_path: Path) -> None:
    low, high = (Run({A: 16 + rate / 10, B: 20, C: 20}, {A: {FOUR[0]: rate}, B: {}, C: {}}) for rate in (200, 400))
    blocks: dict[float, Run] = {at: (low, high)[at // 5 % 2] for at in range(60)}
    blocks |= {57: Run({A: 56, B: 20}, {A: high.held[A], B: {}}), 60: Run({A: 8, B: 20, C: 20}, high.held)}
    found = outcome(recorded(tmp_path, blocks), "first_bundle_to_b")
    # Equal costs of all CPU; C is missing once. From block to block, 200 msg/s make 20 points, eleven times. A is 52/3
    # points above the mean of the brokers with 200 msg/s more than the mean, B and C are 26/3 below it with 100 less.
    equal = (46 * 12 + 20 * 12 + 20 * 11) / (300 * 12)
    seen = [(20, 200 * equal, 1.5)] * 11 + [(52 / 3, 200 * equal, 10.0)] + [(26 / 3, 100 * equal, 10.0)] * 2
    wrong = 0.5 * sum(by * (found - by) / noise**2 for found, by, noise in seen)
    cost = equal * (1 + wrong / (1 + 0.5 * sum(by**2 / noise**2 for _, by, noise in seen)))
    expected = [20 + cost * rate - (16 + rate / 10 - cost * rate) for rate in (200, 400)]
    assert list(found.score_ranges)[:11] == pytest.approx(
        [16, *[expected[0]] * 4, *[expected[1]] * 5, expected[0]], abs=1e-4
    )
    # It takes no more than was used.
    assert found.score_ranges[60] == pytest.approx(28, abs=1e-4)


def test_a_bundle_costs_at_least_a_twentieth_of_the_mean(tmp_path: Path) -> None:
    # Its broker's CPU falls when it has more messages.
    fewer, more = (Run({A: cpu, B: 20}, {A: {FOUR[0]: rate}, B: {}}) for cpu, rate in ((60, 100), (20, 300)))
    found = outcome(recorded(tmp_path, {at: (fewer, more)[at // 5 % 2] for at in range(60)}), "first_bundle_to_b")
    assert found.score_ranges[1] == pytest.approx(60 - 20 - 2 * 0.05 * 100 * (60 + 20 + 20 + 20) / (100 + 300))


def test_a_strategy_sees_none_where_brokers_measured_nothing(tmp_path: Path) -> None:
    assert outcome(recorded(tmp_path, {0: HOT}), "without_memory").moved_count == 1


def test_a_recorded_move_shows_what_its_bundle_costs(tmp_path: Path) -> None:
    before = Run({A: 50, B: 10}, {A: {FOUR[0]: 100, FOUR[1]: 100}, B: {}})
    after = Run({A: 20, B: 40}, {A: {FOUR[1]: 100}, B: {FOUR[0]: 100}})
    found = outcome(recorded(tmp_path, {at: before if at < 32 else after for at in range(60)}), "nothing")
    assert found.score_ranges == pytest.approx([40] * 60, abs=0.1)


def test_recorded_moves_are_not_repeated_in_a_variant(tmp_path: Path) -> None:
    even = Run(
        {A: 40, B: 60},
        {A: {FOUR[1]: 200, FOUR[2]: 100, FOUR[3]: 100}, B: {FOUR[0]: 400, "t/o/0x00000000_0xffffffff": 200}},
    )
    recording = recorded(tmp_path, {0: HOT, 1: HOT, 2: even, 3: even})
    assert outcome(recording, "nothing").score_ranges == pytest.approx([60] * 4, abs=1e-4)


def test_before_its_first_minute_a_variant_follows_the_recording_and_counts_no_hits(tmp_path: Path) -> None:
    even = Run({A: 40, B: 60}, {A: dict(list(HOT.held[A].items())[1:]), B: {FOUR[0]: 400, **HOT.held[B]}})
    recording = recorded(tmp_path, {0: even, **dict.fromkeys(range(1, 7), HOT)})
    chosen = settings(strategy="AvgShedder", hit_count_low=2, hit_count_high=99)
    [found] = replay(recording, [Variant("it", chosen)], chosen, moves_from=minute_of(minute(3)))
    assert (found.moved_count, found.samples_with_moves) == (2, 1)
    assert found.score_ranges == pytest.approx([60, 60, 0, 0], abs=1e-4)


def test_hits_start_anew_after_a_gap(tmp_path: Path) -> None:
    few = recorded(tmp_path / "few", dict.fromkeys((0, 4, 8), HOT))
    assert few.coverage.gaps == 2
    assert outcome(few).moved_count == 0
    assert outcome(recorded(tmp_path / "enough", dict.fromkeys((0, 3, 6), HOT))).moved_count == 2


def test_the_variant_places_what_lost_its_broker(tmp_path: Path) -> None:
    gone = Run({B: 50, C: 50}, {B: dict.fromkeys(FOUR[:2], 250), C: dict.fromkeys(FOUR[2:], 250)})
    there = Run({A: 80, B: 0, C: 0}, {A: dict.fromkeys(FOUR, 250)})
    found = outcome(recorded(tmp_path, {0: there, 1: gone, 2: gone, 3: Run({**gone.cpu, A: 0}, gone.held)}), "nothing")
    assert found.placed_count == 4
    assert found.moved_count == 0
    # It comes back empty.
    assert found.score_ranges[3] >= 50
    # Where the load manager put them then does not count: this placement puts two on each.
    together = Run({B: 80, C: 0}, {B: dict.fromkeys(FOUR, 250)})
    spread = outcome(recorded(tmp_path / "together", {0: there, 1: together, 2: together}), "nothing")
    assert spread.score_ranges == pytest.approx([80, 0, 0], abs=1e-4)


def test_a_broker_that_restarts_between_two_samples_loses_what_the_variant_has_there(tmp_path: Path) -> None:
    born, first = "t/new/0x00000000_0xffffffff", {A: -60.0, B: -60.0}
    busy = {"t/o/0x00000000_0xffffffff": 2000}
    before = Run({A: 20, B: 80}, {A: HOT.held[A], B: busy}, started=first)
    silent = Run({A: None, B: 80}, {B: busy})
    after = Run({A: 20, B: 80}, {A: {born: 200}, B: {**busy, **HOT.held[A]}}, started=first | {A: 1.5})
    for name, runs in {"known": (before, before, after, after), "silent": (before, silent, after, after)}.items():
        found = outcome(recorded(tmp_path / name, dict(enumerate(runs))), "nothing")
        # The other broker has what was there, though it is busier; what is newer than the start stays.
        assert (found.placed_count, found.moved_count) == (4, 0)
        assert found.score_ranges[2:] == pytest.approx([60, 60], abs=1e-4)
    # What the variant had on another broker stays there, whoever has it in the recording.
    before = Run({A: 80, B: 20}, HOT.held, started=first)
    back = Run({A: 80, B: 20}, HOT.held, started=first | {A: 1.5})
    found = outcome(recorded(tmp_path / "moved", {0: before, 1: before, 2: back}), "first_bundle_to_b")
    assert found.placed_count == 3
    # A part of a bundle that the broker had is lost with it.
    halves = {"t/n/0x00000000_0x20000000": 200, "t/n/0x20000000_0x40000000": 200}
    others = {name: rate for name, rate in HOT.held[A].items() if name != FOUR[0]}
    split = Run({A: 80, B: 20}, {A: halves | others, B: HOT.held[B]}, started=first | {A: 1.5})
    assert outcome(recorded(tmp_path / "split", {0: before, 1: split}), "nothing").placed_count == 5
    # A broker that is alone takes its bundles again.
    alone = [Run({A: 80}, {A: HOT.held[A]}, started={A: at}) for at in (0.0, 1.5)]
    assert outcome(recorded(tmp_path / "alone", {1: alone[0], 2: alone[1]}), "nothing").placed_count == 4


def test_a_bundle_that_is_split_leaves_its_parts_where_the_variant_had_it(tmp_path: Path) -> None:
    whole = Run({A: 80, B: 0}, {A: {FOUR[0]: 400, FOUR[1]: 400}})
    halves = {"t/n/0x00000000_0x20000000": 200, "t/n/0x20000000_0x40000000": 200}
    split = Run({A: 80, B: 0}, {A: {**halves, FOUR[1]: 400}})
    found = outcome(recorded(tmp_path, {0: whole, 1: whole, 2: split, 3: split}), "first_bundle_to_b")
    assert found.score_ranges == pytest.approx([80, 0, 0, 0], abs=1e-4)


def test_a_silent_broker_is_as_it_was_and_is_left_alone(tmp_path: Path) -> None:
    silent = Run({A: None, B: 20}, {B: HOT.held[B]})
    in_doubt = Run(HOT.cpu, HOT.held, left_out=(A,))
    for name, run in {"silent": silent, "in_doubt": in_doubt}.items():
        # Two hits in a row are no longer there: a sample that cannot be judged ends nothing and adds nothing.
        found = outcome(recorded(tmp_path / name, {0: HOT, 1: run, 2: HOT, 3: HOT}))
        assert found.score_ranges == pytest.approx([60, 0, 60, 0], abs=1e-4)
    held = outcome(recorded(tmp_path / "held", {0: HOT, 1: silent, 2: silent}), "first_bundle_to_b")
    # What was moved away from a broker that is silent afterwards is still carried by the other.
    assert held.moved_count == 1
    storage = ClusterStorage(str(tmp_path / "held"), CLUSTER)
    sample = list(made(storage, tmp_path / "again", 2).samples([int(minute(n).timestamp() // 60) for n in range(3)]))[2]
    assert sample.loads[0].sum() == pytest.approx(1000)
    assert sample.brokers.is_reported.tolist() == [False, True]


def test_left_out_or_draining_brokers_move_nothing(tmp_path: Path) -> None:
    held = Run(HOT.cpu, HOT.held, left_out=(FOUR[0],))
    assert outcome(recorded(tmp_path / "bundle", dict.fromkeys(range(4), held)), "first_bundle_to_b").moved_count == 1
    eager = {"hit_count_high": 1, "max_unload_percentage": 1.0}
    assert outcome(recorded(tmp_path / "free", {0: HOT}), **eager).moved_count == 2
    assert outcome(recorded(tmp_path / "held", {0: held}), **eager).moved_count == 3
    drained = Run(HOT.cpu, HOT.held, drained=(B,))
    assert outcome(recorded(tmp_path / "drained", dict.fromkeys(range(4), drained)), **eager).moved_count == 0


seen: list[dict[str, float]] = []


def means_seen(sample: ClusterSample, state: ShedderState) -> SheddingResult:
    names = [broker.broker for broker in sample.brokers]
    seen.append({bundle.bundle: bundle.msg_rate for name in names for bundle in sample.bundles.of_broker(name)})
    return nothing(sample, state)


def test_hits_are_counted_by_time_as_in_a_run(tmp_path: Path) -> None:
    recording = recorded(tmp_path, dict.fromkeys(range(8), HOT))
    # Fifteen seconds between runs: a minute between samples is no gap.
    assert outcome(recording, interval_seconds=15).moved_count == 2
    # Five minutes between runs: what was collected in between by hand is no sample.
    assert outcome(recording, interval_seconds=300).score_ranges[:4] == pytest.approx([60] * 4, abs=1e-4)
    # Brokers that measure themselves every five minutes repeat their values: one sample, one hit.
    slow = outcome(recording, host_usage_interval_minutes=5)
    assert slow.score_ranges[:5] == pytest.approx([60] * 5, abs=1e-4)
    assert slow.moved_count == 2


def test_averages_that_brokers_report_follow_what_the_variant_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Run(HOT.cpu, HOT.held, extra={"load_average": 0.5, "throughput_average": 7000.0})
    seen: list[tuple[Any, Any]] = []
    judge = Balancer.choose_moves

    def noted(balancer: Balancer, minute: Minute) -> Any:
        assert minute.broker_loads.averages is not None
        seen.append(tuple(minute.broker_loads.averages))
        return judge(balancer, minute)

    monkeypatch.setattr(Balancer, "choose_moves", noted)
    outcome(recorded(tmp_path, dict.fromkeys(range(3), own)), "first_bundle_to_b", history_percentage=0.9)
    loads, throughputs = zip(*seen, strict=True)
    # Exactly what was reported, then a tenth of the 40 points that moved, and a tenth more of what is left.
    assert loads[0].tolist() == [0.5, 0.5]
    assert loads[1] == pytest.approx([0.46, 0.54], abs=1e-6)
    assert loads[2] == pytest.approx([0.5 - 0.076, 0.5 + 0.076], abs=1e-6)
    assert [each.tolist() for each in throughputs[:2]] == [[7000, 7000], pytest.approx([3000, 11000])]


def test_a_strategy_that_raises_an_error_ends_only_its_own_variant(tmp_path: Path) -> None:
    recording = recorded(tmp_path, dict.fromkeys(range(6), HOT))
    raising = [Variant(name, settings(strategy=f"{__name__}:{name}")) for name in RAISING]
    current = Variant(CURRENT_VARIANT, settings(), is_current=True)
    expected, _ = replay(recording, [current], settings())
    *failed, unhurt, _ = replay(recording, [*raising, current], settings())
    assert unhurt == expected
    assert unhurt.failed is None
    for one in failed:
        sample, words = RAISING[one.variant]
        assert one.failed is not None
        assert one.failed.time == minute(sample)
        assert one.failed.error.startswith(words)
        assert len(one.score_ranges) == sample + 1
