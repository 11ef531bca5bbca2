"""Families of sustained load: what a file and a seed draw, what is measured, controls that lose, hashes of results."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
from lab.experiments.run import minute_of
from lab.experiments.scenario import ScenarioError
from lab.families import family_page
from lab.families.__main__ import main
from lab.families.contestants import AVG, contestants
from lab.families.drawing_clusters import draw
from lab.families.family import Family, load_all
from lab.families.family_results import Figures, read_all, write
from lab.families.family_run import DaysRecorder

from pulsar_simulator.minutes import load_series
from pulsar_simulator.minutes.simulation import Simulation

if TYPE_CHECKING:
    from pathlib import Path


FAMILIES = load_all()
SHORT = """
title = "t"
about = "a"
kind = "KIND"
seeds = [7]
minutes = 15

[brokers]
count = [3, 3]

[[topics]]
per_broker = 6
cost_spread = 0.8
"""


def files(folder: Path) -> Path:
    for name, kind in (("mine", "training"), ("theirs", "held-out")):
        (folder / f"{name}.toml").write_text(SHORT.replace("KIND", kind), encoding="utf-8")
    return folder


def short(family: str, minutes: int) -> Family:
    return FAMILIES[family].model_copy(update={"minutes": minutes})


def test_training_and_held_out_families_have_no_seed_in_common() -> None:
    training, held_out = (
        {seed for family in FAMILIES.values() if family.kind == kind for seed in family.seeds}
        for kind in ("training", "held-out")
    )
    assert len(training) >= 5
    assert len(held_out) >= 5
    assert not training & held_out


@pytest.mark.parametrize(
    ("change", "to", "named"),
    [
        ("minutes = 15", "minuets = 15", "minuets"),
        ("count = [3, 3]", "count = [3, 2]", "3 is above 2"),
        ("per_broker = 6", "per_broker = 6\ndaily = {amplitude = [0, 2]}", "topics.0.daily.amplitude"),
        ('kind = "KIND"', 'kind = "exam"', "kind"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(change: str, to: str, named: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(SHORT.replace(change, to).replace("KIND", "training"), encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"mine\.toml") as refused:
        load_all(tmp_path)
    assert named in str(refused.value)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_seed_draws_the_same_cluster_each_time_and_another_seed_another(name: str) -> None:
    family = short(name, 200)
    first, again, other = (draw(family, seed, direct=False) for seed in (7, 7, 8))
    for minute in (0, 199):
        assert first.workload.at(minute).msg_rate_in.tolist() == again.workload.at(minute).msg_rate_in.tolist()
    assert first.events == again.events
    assert first.workload.at(0).msg_rate_in.tolist() != other.workload.at(0).msg_rate_in.tolist()
    assert list(first.workload.bundles.names) == sorted(first.workload.bundles.names)


def test_a_cluster_carries_the_load_that_the_file_names() -> None:
    family = short("steady", 60)
    spec = draw(family, 7, direct=False)
    simulation = Simulation(spec)
    reports = [simulation.step() for _ in range(60)]
    cpu = np.mean([report.brokers.cpu.sum() for report in reports]) / spec.brokers.cpu_limit.sum()
    assert family.brokers.load[0] - 1 < 100 * cpu < family.brokers.load[1] + 1


def test_brokers_come_and_go_as_often_as_the_file_names_and_some_always_stay() -> None:
    family = FAMILIES["scaling"]
    changes, days = family.changes, family.minutes / 1440
    counts = []
    for seed in range(20):
        spec = draw(family, seed, direct=False)
        there = spec.started.copy()
        for event in spec.events:
            assert there[event.broker] == (event.happening == "stop")
            there[event.broker] = not there[event.broker]
            assert there.sum() >= 3
        counts.append(len(spec.events))
    # A restart is a stop and a start.
    assert np.mean(counts) == pytest.approx(days * (2 * changes.restarts_per_day + changes.scalings_per_day), rel=0.2)


def test_no_strategy_is_given_the_costs_of_messages_or_the_slowness_of_brokers() -> None:
    family = short("hidden_slow", 5)
    spec = draw(family, 7, direct=False)
    assert spec.brokers.slowness.max() > 1.2  # type: ignore[union-attr]
    report = Simulation(spec).step()
    given = minute_of(report, spec.brokers)
    # The limits are those of the cores; the only trace of the truth is the CPU that is used.
    assert given.brokers.limits[0].tolist() == spec.brokers.cpu_limit.tolist()
    figures = [given.bundles.ravel(), given.brokers.traffic.ravel(), given.brokers.limits.ravel()]
    hidden = {*spec.workload.bundles.cost.tolist(), *np.unique(spec.brokers.slowness)[1:].tolist()}
    assert not hidden & set(np.concatenate(figures).tolist())


SERIES = {
    "daily": load_series.daily(np.random.default_rng(1), 1440, 200, (0.2, 0.8)),
    "drift": load_series.drift(np.random.default_rng(1), 2880, 400, 0.5, 2.0),
    "shifts": load_series.shifts(np.random.default_rng(1), 2880, 400, 4.0, 0.5),
    "pauses": load_series.pauses(np.random.default_rng(1), 2880, 400, 20.0, 40.0),
}


@pytest.mark.parametrize("kind", SERIES)
def test_a_series_keeps_the_mean_of_the_load(kind: str) -> None:
    assert SERIES[kind].min() >= 0
    assert SERIES[kind].mean() == pytest.approx(1, abs=0.03)


def test_a_series_has_the_shape_that_was_asked_for() -> None:
    peaks, levels = SERIES["daily"].argmax(axis=0), np.log(SERIES["drift"])
    assert np.histogram(peaks, 4, (0, 1440))[0].min() > 30
    assert levels.std() == pytest.approx(0.5, abs=0.03)
    deviations = levels - levels.mean()
    assert (deviations[:-120] * deviations[120:]).mean() / levels.var() == pytest.approx(np.exp(-1), abs=0.05)
    assert np.count_nonzero(np.diff(SERIES["shifts"], axis=0)) / 400 / 2 == pytest.approx(4, rel=0.1)
    assert set(np.unique(SERIES["pauses"])) == {0, 3}
    assert np.count_nonzero(np.diff(SERIES["pauses"], axis=0) > 0) / 400 == pytest.approx(2880 / 60, rel=0.05)


def test_bursts_and_jobs_come_on_top() -> None:
    high = load_series.bursts(np.random.default_rng(1), 1440, 500, 3.0, 10.0, (4.0, 6.0))
    assert set(np.unique(high > 1.0)) == {False, True}
    assert high[high > 1].min() >= 4
    assert (high > 1).sum() / 500 == pytest.approx(3 * 10, rel=0.1)
    hourly = load_series.jobs(np.random.default_rng(1), 600, 50, 60, 5, (2.0, 2.0))
    assert (hourly == 2).sum(axis=0).tolist() == [50] * 50
    assert hourly[60:].tolist() == hourly[:-60].tolist()


def measured(ranges: list[float], changes: list[int]) -> Figures:
    recorder = DaysRecorder(0)
    for width in ranges:
        recorder.minute(np.array([50.0 + width, 50.0]), np.array([True, True]), np.array([3.0, 1.0]) * 2**20)
    recorder.unloads(1, [(0, 2.0 * 2**20, False)])
    return recorder.sustained(changes)


def test_what_days_are_measured_by() -> None:
    figures = measured([40.0] * 72 + [10.0] * 72, [])
    assert figures["moves_per_day"] == 10
    assert figures["disturbed_per_day"] == 10 * 50
    assert (figures["range_mean"], figures["range_p95"], figures["hottest_p99"]) == (25, 40, 90)
    assert figures["minutes_above_80_per_day"] == 720
    assert figures["settling"] is None


@pytest.mark.parametrize(
    ("ranges", "changes", "settling"),
    [
        ([10.0] * 5 + [40.0] * 3 + [10.0] * 12, [5], 3),
        ([40.0, 10.0, 10.0, 10.0, 10.0] * 4, [5], 15),
        ([40.0] * 10 + [10.0] * 10, [5, 8], 2.5),
    ],
)
def test_a_cluster_has_settled_after_a_change_once_it_stays_close_for_minutes(
    ranges: list[float], changes: list[int], settling: float
) -> None:
    assert measured(ranges, changes)["settling"] == settling


def test_from_files_to_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--families", str(files(tmp_path)), "--output", str(tmp_path / "results"), "--processes", "1"]
    assert main(where) == 0
    (mine,) = read_all(tmp_path / "results" / "training").values()
    assert set(mine.runs) == contestants().keys()
    assert (mine.family, mine.seeds) == ("mine", (7,))
    assert "| AvgShedder |" in capsys.readouterr().out
    assert not (tmp_path / "results" / "held-out").exists()
    own = "tests.lab.test_experiments:every_third"
    assert main([*where, "theirs", "--strategy", own]) == 0
    (theirs,) = read_all(tmp_path / "results" / "held-out").values()
    assert set(theirs.runs) - set(mine.runs) == {own}
    assert main([*where, "others"]) == 2
    assert "no family others; there are mine, theirs" in capsys.readouterr().err


WRITTEN = family_page.written()


@pytest.mark.parametrize("file", WRITTEN, ids=lambda file: file.name)
def test_documents_and_pictures_are_drawn_from_the_committed_results(file: Path) -> None:
    assert file.read_text(encoding="utf-8") == WRITTEN[file], "run make experiments DRAW=1"


def test_a_changed_number_changes_pictures_and_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(family_page.RESULTS, tmp_path / "results")
    monkeypatch.setattr(family_page, "RESULTS", tmp_path / "results")
    results = read_all(tmp_path / "results" / "training")["daily"]
    results.runs[AVG][0]["moves_per_day"] += 1000  # type: ignore[operator]
    write(tmp_path / "results" / "training", results)
    after = family_page.written()
    assert [file.name for file in WRITTEN if WRITTEN[file] == after[file]] == []


@pytest.mark.parametrize("kind", ["training", "held-out"])
def test_committed_results_are_of_committed_sources_and_of_all_contestants(kind: str) -> None:
    committed = read_all(family_page.RESULTS / kind)
    assert committed.keys() == {name for name, family in FAMILIES.items() if family.kind == kind}
    for name, results in committed.items():
        assert list(results.runs) == list(contestants())
        assert set(results.seeds) <= set(FAMILIES[name].seeds)
        assert "changes" not in results.commit
