import re
from datetime import timedelta
from pathlib import Path

from tests.include.pulsar_rebalancer.replay.recorded import FOUR, START, Run, recorded, settings
from tests.include.pulsar_rebalancer.replay.test_closed_loop import HOT, listed

from pulsar_rebalancer.replay.closed_loop import replay
from pulsar_rebalancer.replay.replay_run import PreparedReplay, write_results
from pulsar_rebalancer.replay.samples import Recording
from pulsar_rebalancer.replay.variant_outcome import VariantOutcome
from pulsar_rebalancer.replay.variants import ANSWER, CURRENT_VARIANT, REPORT, ReplayRequest, Variant
from pulsar_rebalancer.storage.path import StoragePath

__all__ = ["listed"]

A, B, C = "a:8080", "b:8080", "c:8080"
OTHER = "t/o/0x00000000_0xffffffff"
AFTER = Run({A: 40, B: 60}, {A: dict(zip(FOUR[1:], (200, 100, 100), strict=True)), B: {FOUR[0]: 400, OTHER: 200}})
"""The load of `HOT` once its busiest bundle is on the other broker."""


def of(recording: Recording, name: str = "nothing") -> tuple[VariantOutcome, VariantOutcome]:
    current = settings(strategy=f"{listed.__module__}:{name}")
    replayed, outcome = replay(recording, [Variant(CURRENT_VARIANT, current, is_current=True)], current)
    return outcome, replayed


def test_only_what_was_unloaded_counts_as_unloaded(tmp_path: Path) -> None:
    first = {A: -60.0, B: -60.0}
    before = Run(HOT.cpu, HOT.held, started=first)
    moved = Run(AFTER.cpu, AFTER.held, started=first)
    without = {name: rate for name, rate in HOT.held[A].items() if name != FOUR[0]}
    halves = {"t/n/0x00000000_0x20000000": 200, "t/n/0x20000000_0x40000000": 200}
    everything = {B: {**HOT.held[B], **HOT.held[A]}}
    cases: dict[str, tuple[dict[float, Run], int, int]] = {
        # What is missing in one sample and is on another broker in the next was unloaded.
        "under way": ({0: before, 1: Run(HOT.cpu, {A: without, B: HOT.held[B]}, started=first), 2: moved}, 1, 0),
        "restarted": ({0: before, 1: Run(AFTER.cpu, AFTER.held, started=first | {A: 0.5})}, 0, 1),
        "restarted and missing": (
            {0: before, 1: Run(HOT.cpu, {A: without, B: HOT.held[B]}, started=first | {A: 0.5}), 2: moved}, 0, 0,
        ),
        "gone": ({0: before, 1: Run({B: 90}, everything, started=first), 2: moved}, 3, 4),
        "silent": ({0: before, 1: Run({A: None, B: 90}, everything), 2: before}, 4, 4),
        "split": ({0: before, 1: Run(HOT.cpu, {A: without, B: {**HOT.held[B], **halves}}, started=first)}, 0, 0),
    }  # fmt: skip
    for name, (runs, unloaded, lost) in cases.items():
        outcome, _ = of(recorded(tmp_path / name, runs))
        assert (outcome.moved_count, outcome.placed_count) == (unloaded, lost), name


def test_the_report_shows_times_gaps_and_both(tmp_path: Path) -> None:
    numbers = [*range(30), *range(90, 120)]
    recording = recorded(tmp_path, {n: HOT if n < 10 else AFTER for n in numbers})
    request = ReplayRequest(cluster="east", settings=settings(), start=START, end=START + timedelta(hours=2), grid=[])
    outcomes = {outcome.variant: outcome for outcome in replay(recording, request.variants.variants, settings())}
    folder = StoragePath(str(tmp_path / "out"))
    write_results(PreparedReplay(folder, folder, request, recording, request.variants), outcomes, 1.0)
    page = (folder / REPORT).read_bytes().decode()
    scatter, over_time = (re.findall(r"<svg.*?</svg>", page, re.DOTALL)[at] for at in (1, 0))
    for words in ("1", "10", "unloads a day", "as recorded", "current settings", "picked"):
        assert re.search(rf"<text[^>]*>{words}</text>", scatter), words
    for words in ("12:30", "13:30", "time, UTC", "as recorded", "current settings, replayed", "unloads so far"):
        assert re.search(rf"<text[^>]*>{words}</text>", over_time), words
    # The line of the recording has a second piece after the gap.
    assert any(len(re.findall(r"\bM ", path)) == 2 for path in re.findall(r'<path d="([^"]*)"', over_time))
    answer = (folder / ANSWER).read_json()
    assert answer["agreement"]["bundles_recorded"] == 1
    assert "as recorded</td><td>1</td><td>1</td>" in page
    assert "mathdefault" not in page
