"""What the recording itself did, next to the replayed current settings, and how far the two agree."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from tests.include.pulsar_rebalancer.replay.recorded import FOUR, START, Run, minute, recorded, settings
from tests.include.pulsar_rebalancer.replay.test_closed_loop import HOT, listed

from pulsar_rebalancer.replay.agreement import RECORDING, Agreement
from pulsar_rebalancer.replay.closed_loop import replay
from pulsar_rebalancer.replay.conclusion import conclude
from pulsar_rebalancer.replay.preparation import Prepared
from pulsar_rebalancer.replay.replay_request import ANSWER, REPORT, ReplayRequest
from pulsar_rebalancer.replay.variants import CURRENT, Variant
from pulsar_rebalancer.storage.path import StoragePath

if TYPE_CHECKING:
    from pathlib import Path

    from pulsar_rebalancer.replay.samples import Recording
    from pulsar_rebalancer.replay.variant_outcome import VariantOutcome

__all__ = ["listed"]

A, B, C = "a:8080", "b:8080", "c:8080"
OTHER = "t/o/0x00000000_0xffffffff"
AFTER = Run({A: 40, B: 60}, {A: dict(zip(FOUR[1:], (200, 100, 100), strict=True)), B: {FOUR[0]: 400, OTHER: 200}})
"""The load of `HOT` once its busiest bundle is on the other broker."""


def of(recording: Recording, name: str = "nothing") -> tuple[VariantOutcome, VariantOutcome]:
    """The recording's outcome and that of the current settings."""
    current = settings(strategy=f"{listed.__module__}:{name}")
    replayed, outcome = replay(recording, [Variant(CURRENT, current, current=True)], current)
    return outcome, replayed


def test_a_replay_with_the_recording_s_own_moves_repeats_it(tmp_path: Path) -> None:
    recording = recorded(tmp_path, {0: HOT, 1: AFTER, 2: AFTER, 3: HOT, 4: HOT})
    outcome, replayed = of(recording, "there_and_back")
    assert outcome.variant == RECORDING
    assert outcome.ranges.tolist() == pytest.approx([60, 20, 20, 60, 60])
    assert (outcome.moved, outcome.events, outcome.disturbed) == (2, 2, 80_000)
    assert outcome.minutes.tolist() == [int(minute(n).timestamp()) // 60 for n in range(5)]
    assert [at - outcome.minutes[0] for at in outcome.moved_at] == [1, 3]
    # The replay moves the bundle back one minute later than the recording.
    agreement = Agreement.of(outcome, replayed, 5)
    assert (agreement.bundles_recorded, agreement.bundles_replayed, agreement.bundles_both) == (1, 1, 1)
    assert (agreement.unloads_recorded, agreement.unloads_replayed) == (2 * 1440 / 5, replayed.moved * 1440 / 5)


def test_the_agreement_is_that_of_the_ranges_sample_by_sample(tmp_path: Path) -> None:
    recording = recorded(tmp_path, {0: HOT, 1: AFTER, 2: AFTER})
    outcome, replayed = of(recording, "first_bundle_to_b")
    same = Agreement.of(outcome, replayed, 3)
    assert same.range_apart == pytest.approx(0, abs=1e-4)
    assert same.range_correlation == pytest.approx(1)
    assert (same.bundles_recorded, same.bundles_replayed, same.bundles_both) == (1, 1, 1)
    outcome, replayed = of(recording)
    other = Agreement.of(outcome, replayed, 3)
    assert [other.range_recorded, other.range_replayed] == pytest.approx([100 / 3, 60])
    assert other.range_apart == pytest.approx(80 / 3)
    # A range that never changes has no correlation.
    assert other.range_correlation is None
    assert (other.bundles_recorded, other.bundles_replayed, other.bundles_both) == (1, 0, 0)
    assert other.sentence == (
        "The replayed range differs from the recorded one by 26.7 points on average; unloads a day: 480.0 recorded, "
        "0.0 replayed; bundles that moved: 1 recorded, 0 replayed, 0 in both"
    )


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
        assert (outcome.moved, outcome.lost) == (unloaded, lost), name


def test_the_report_shows_times_gaps_and_both(tmp_path: Path) -> None:
    numbers = [*range(30), *range(90, 120)]
    recording = recorded(tmp_path, {n: HOT if n < 10 else AFTER for n in numbers})
    request = ReplayRequest(cluster="east", settings=settings(), start=START, end=START + timedelta(hours=2), grid=[])
    outcomes = {outcome.variant: outcome for outcome in replay(recording, request.variants.variants, settings())}
    folder = StoragePath(str(tmp_path / "out"))
    conclude(Prepared(folder, folder, request, recording, request.variants), outcomes, 1.0)
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
