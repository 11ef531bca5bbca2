"""CSV traces: a series per broker, bundles made as stated, and what is no figure named by file, row and column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.include.pulsar_rebalancer.replay.recorded import settings

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.replay.closed_loop import replay
from pulsar_rebalancer.replay.samples import Recording
from pulsar_rebalancer.replay.traces import MadeBundles, record
from pulsar_rebalancer.replay.variants import Variant
from pulsar_rebalancer.storage.path import StoragePath

if TYPE_CHECKING:
    from pathlib import Path

MADE = MadeBundles(bundles=8, seed=3)


def traced(folder: Path, texts: dict[str, str], made: MadeBundles = MADE) -> Recording:
    files = [folder / f"{name}.csv" for name in texts]
    for file, text in zip(files, texts.values(), strict=True):
        file.write_text(text)
    target = StoragePath(str(folder / "recording"))
    record(files, made, settings(), target)
    return Recording.read(target)


def test_both_forms_give_the_same(tmp_path: Path) -> None:
    wide = "Time,a,b\n2026-03-20 12:00:00,80,20\n2026-03-20 12:05:00,90,10\n"
    single = {
        "a": "timestamp,value\n1774008000,80\n1774008300,90\n",
        "b": "timestamp,value\n1774008000000,20\n1774008300000,10\n",
    }
    found = []
    for name, texts in {"wide": {"wide": wide}, "single": single}.items():
        (tmp_path / name).mkdir()
        recording = traced(tmp_path / name, texts)
        assert recording.roster.brokers == ("a", "b")
        assert len(recording.roster.bundles) == 16
        assert "8 per broker" in recording.coverage.made
        assert "seed 3" in recording.coverage.made
        found.append([sample.brokers.usage[0].tolist() for sample in recording.samples(recording.minutes())])
    assert found[0] == found[1] == [[80 + 2 * n, 20 - 2 * n] for n in range(6)]


def test_the_load_of_a_trace_follows_what_a_variant_moves(tmp_path: Path) -> None:
    rows = "".join(f"2026-03-20 12:{n:02}:00Z,80,20\n" for n in range(10))
    found = replay(traced(tmp_path, {"wide": f"Time,a,b\n{rows}"}), [Variant("it", settings())], settings())[0]
    assert found.moved > 0
    assert found.ranges[0] == pytest.approx(60, abs=1e-4)
    assert found.ranges[-1] < 15


def test_made_bundles_of_the_same_range_move_side_by_side(tmp_path: Path) -> None:
    pairs = 20
    names, rows = [f"b{n}" for n in range(2 * pairs)], ",".join(["80"] * pairs + ["20"] * pairs)
    made = MadeBundles(bundles=4, spread=0)
    recording = traced(tmp_path, {"wide": f"Time,{','.join(names)}\n0,{rows}\n"}, made)
    eager = settings(hit_count_high=1)
    assert replay(recording, [Variant("it", eager)], eager)[0].moved == pairs


def test_brokers_come_and_go_and_gaps_are_gaps(tmp_path: Path) -> None:
    late = "".join(
        f"2026-03-20 12:{n:02}:00,{'' if 4 <= n < 14 else 50},{60 if n > 5 else ''},NaN\n" for n in range(20)
    )
    recording = traced(tmp_path, {"wide": f"Time,a,b,c\n{late}"})
    assert recording.roster.brokers == ("a", "b")
    there = {sample.minute - recording.index.minutes[0]: sample for sample in recording.samples(recording.minutes())}
    assert [there[n].brokers.registered.tolist() for n in (0, 8, 19)] == [[True, False], [True, True], [True, True]]
    assert [there[n].brokers.reported.tolist() for n in (3, 8, 19)] == [[True, False], [False, True], [True, True]]
    assert recording.coverage.samples == 18
    assert there[8].carried[0].sum() == pytest.approx((50 + 60) * 1000)


def test_the_seed_decides_the_sizes(tmp_path: Path) -> None:
    carried = []
    for name, seed in {"one": 3, "same": 3, "other": 4}.items():
        (tmp_path / name).mkdir()
        recording = traced(tmp_path / name, {"a": "timestamp,value\n0,10\n"}, MadeBundles(bundles=8, seed=seed))
        (sample,) = recording.samples(recording.minutes())
        carried.append(sample.carried[0])
    np.testing.assert_array_equal(carried[0], carried[1])
    assert not np.allclose(carried[0], carried[2])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("timestamp,value\n0,10\n60,n/a\n", "a.csv, row 3, column value: 'n/a' is not a number"),
        ("Time,x,y\n0,10,10\n60,10,43.2%\n", "a.csv, row 3, column y: '43.2%' is not a number"),
        ("timestamp,value\nyesterday,10\n", "a.csv, row 2, column timestamp: 'yesterday' is not a time"),
        ("timestamp,value\n0,-3\n", "a.csv, row 2, column value: -3 is not a percentage of CPU"),
        ("timestamp,value\n0,inf\n", "a.csv, row 2, column value: inf is not a percentage of CPU"),
        ("timestamp,value\n0,1,2\n", "a.csv, row 2: 3 cells instead of 2"),
        ("timestamp\n0\n", "a.csv, row 1: expected a header"),
        ("", "a.csv, row 1: expected a header"),
        ("Time,x,x\n0,10,10\n60,10,10\n", "two series of broker x"),
        ("timestamp,value\n0,10\n4000000000,10\n", "46,296 days from the first time"),
        ("timestamp,value\n9999-12-31T23:59:00Z,10\n", "row 2, column timestamp: '9999-12-31T23:59:00Z' is not a time"),
        ("timestamp,value\n0001-01-01T00:00:00+14:00,10\n", "row 2, column timestamp: '0001-01-01T00:00:00+14:00' is"),
        ("timestamp,value\n0,\n", "no series with a sample"),
        ("Time,x,,y\n0,10,10,10\n", "a.csv, row 1, column 3: the column has no name"),
        ("Time,x, \n0,10,10\n", "a.csv, row 1, column 3: the column has no name"),
        ("timestamp,value\n0,350\n", "row 2, column value: 350 is not a percentage of CPU, where 100 is all"),
        ("timestamp,value\n0,110.1\n", "row 2, column value: 110.1 is not a percentage of CPU"),
        ("Time,x,y\n0,0.93,0.2\n60,1.0,0\n", "a.csv: no figure is above 1: percentages of CPU"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SnapshotError) as refused:
        traced(tmp_path, {"a": text})
    assert refused.value.reason == "bad_trace"
    assert words in str(refused.value)


def test_a_recording_that_fills_the_disk_is_refused_before_it_is_written(tmp_path: Path) -> None:
    names, row = ",".join(f"b{n}" for n in range(3000)), ",50" * 3000
    with pytest.raises(
        SnapshotError, match=r"1,441 minutes of 3,000 brokers with 64 bundles each take 9 GB.*bad_trace"
    ):
        traced(tmp_path, {"wide": f"Time,{names}\n0{row}\n86400{row}\n"}, MadeBundles())
    assert not (tmp_path / "recording").exists()


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00binary")
    for name in ("a.csv", "missing.csv"):
        with pytest.raises(SnapshotError, match=f"{name}: cannot be read"):
            record([tmp_path / name], MADE, settings(), StoragePath(str(tmp_path / "recording")))


def test_a_trace_says_which_of_its_minutes_nobody_measured(tmp_path: Path) -> None:
    rows = "0,10,0.5\n20,60,0.5\n59,80,0.5\n60,70,0.5\n180,105,\n240,,1\n"
    coverage = traced(tmp_path, {"wide": f"Time,a,idle\n{rows}"}).coverage
    # The first minute has three figures; a is measured in three of its four minutes, idle in three of its five.
    assert (coverage.repeated, coverage.faint) == (2, ("idle",))
    assert coverage.interpolated == pytest.approx(3 / 9)
    several, interpolated, faint = coverage.notes
    assert several == "the trace has several figures in a minute: only the last one of each minute counts"
    assert interpolated.startswith("33.3% of the load reports are interpolated between two figures of the trace")
    assert faint.endswith("or whose figures are ratios: idle")


def test_a_trace_with_a_figure_in_every_minute_has_no_notes(tmp_path: Path) -> None:
    zeros = traced(tmp_path, {"wide": "Time,a,b\n0,10,0\n60,20,0\n"})
    assert zeros.coverage.notes == []
