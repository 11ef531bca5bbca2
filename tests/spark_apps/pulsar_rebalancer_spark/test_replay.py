"""Variants, clusters and days dealt out over Spark: the same as one after the other, as table and as report."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from tests.include.pulsar_rebalancer.replay.recorded import FOUR, Run, minute, settings

from pulsar_rebalancer.replay.closed_loop import replay
from pulsar_rebalancer.replay.replay_request import ANSWER, REPORT, REQUEST, TABLE, ReplayRequest
from pulsar_rebalancer.replay.replay_run import prepare
from pulsar_rebalancer.replay.samples import Recording
from pulsar_rebalancer.replay.snapshots import record
from pulsar_rebalancer.replay.variant_outcome import Agreement, Figures, figures
from pulsar_rebalancer.replay.variants import CURRENT
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.shedders.registry import STRATEGIES_VARIABLE
from pulsar_rebalancer_spark.replay import main, run

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

A, B = "a:8080", "b:8080"
GRID = [{"strategy": "AvgShedder", "hit_count_high": [1, 3, 20]}, {"strategy": ["ThresholdShedder", "TransferShedder"]}]
NONE = {"low_threshold": list(range(50, 62)), "high_threshold": 20}
"""Combinations that contradict themselves."""


def hot(score: float) -> Run:
    return Run(
        {A: score, B: 20}, {A: dict(zip(FOUR, (400, 200, 100, 100), strict=True)), B: {"t/o/0x0_0xffffffff": 200}}
    )


def request(root: Path, cluster: str, score: float, **values: object) -> StoragePath:
    storage = ClusterStorage(str(root), cluster)
    for number in (*range(8), *range(1440, 1448)):
        hot(score).write(storage, minute(number))
    end = minute(1500)
    asked = ReplayRequest(cluster=cluster, settings=settings(), start=minute(0), end=end, grid=[*GRID, NONE], **values)
    folder = storage.base / "replays" / "one"
    asked.write(folder)
    return folder


def test_clusters_variants_and_days_side_by_side(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, days = request(tmp_path, "whole", 80), request(tmp_path, "days", 70, days_apart=True, worth=0)
    ready = [prepare(str(tmp_path), folder) for folder in (whole, days, request(tmp_path, "broken", 80))]
    (ready[2].work / "samples" / "0").delete()
    failed = run(spark.sparkContext, ready)
    # One that fails is named, and takes no other along.
    assert list(failed) == [ready[2].folder.uri]
    assert "[file_missing]" in failed[ready[2].folder.uri]

    asked = ReplayRequest.read(whole)
    target = StoragePath(str(tmp_path / "here"))
    record(ClusterStorage(str(tmp_path), "whole"), asked.settings, asked.start, asked.end, target)
    variants = asked.variants.variants
    *outcomes, recording = replay(Recording.read(target), variants, asked.settings)
    here = [figures(outcome, 16) for outcome in outcomes]
    table = (whole / TABLE).read_table().to_pylist()
    assert [{name: row[name] for name in here[0]._fields} for row in table] == [each._asdict() for each in here]
    assert [row["variant"] for row in table if row["current"]] == [CURRENT]
    assert {row["strategy"] for row in table} == {"AvgShedder", "ThresholdShedder", "TransferShedder"}

    assert {(row["samples"], row["expected"], row["gaps"]) for row in table} == {(16, 1500, 1)}
    assert {(row["first"], row["last"]) for row in table} == {(minute(0), minute(1447))}
    answer = (whole / ANSWER).read_json()
    assert answer["coverage"]["samples"] == 16
    assert answer["coverage"]["gaps"] == 1
    assert (len(answer["left_out"]), answer["left_out_count"]) == (10, 12)
    assert [row["variant"] for row in table if row["picked"]] == [answer["picked"]] == ["AvgShedder, hit_count_high 1"]
    assert {row["variant"] for row in table if row["on_front"]} == set(answer["front"])
    # Of two days that begin anew each moves what the whole moves once.
    moved = {row["variant"]: row for row in (days / TABLE).read_table().to_pylist()}["AvgShedder, hit_count_high 1"]
    assert (moved["moved"], moved["events"], moved["unloads_per_day"]) == (4, 2, 4 * 1440 / 16)
    assert (days / ANSWER).read_json()["picked"] == "TransferShedder"

    page = (whole / REPORT).read_bytes().decode()
    assert page.count("<svg") == 2
    assert "$" not in page
    for words in ("as recorded", "current settings, replayed", "time, UTC", "no other beats them in both", "picked"):
        assert words in page[page.index("<svg") :]
    agreement = Agreement.of(recording, next(o for o in outcomes if o.variant == CURRENT), 16)
    assert Agreement.model_validate(answer["agreement"]) == agreement
    assert f"<p>{agreement.sentence}.</p>" in page
    for words in ("16 of 1,500 samples (1.1%)", "extrapolated from 0.3 hours", "left out: 2 more"):
        assert words in page
    assert "http-equiv" in page
    for outside in ("http://", "https://", "<script", "url(http"):
        assert outside not in page
    assert "<tr class=current><td>" in page
    assert "<tr class=picked><td>" in page
    for folder in (whole, days):
        assert sorted(folder.names()) == sorted({ANSWER, REPORT, REQUEST, TABLE})
    told = capsys.readouterr().out
    for words in (
        "whole: 6 variants, 16 of 1,500 samples",
        "whole: 12 contradictory combinations left out",
        "unloads a day (2 in all)",
        f"whole: {agreement.sentence}",
    ):
        assert words in told


RAISING = "tests.include.pulsar_rebalancer.replay.test_closed_loop:fails_later"


def test_a_strategy_that_raises_an_error_costs_only_its_own_row(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STRATEGIES_VARIABLE, RAISING)
    executors = spark.sparkContext.environment
    monkeypatch.setitem(executors, STRATEGIES_VARIABLE, RAISING)
    monkeypatch.setitem(executors, "PYTHONPATH", str(Path(__file__).parents[3]))
    without = request(tmp_path, "without", 80, worth=0)
    folder, all_of_it = request(tmp_path, "with", 80, worth=0), request(tmp_path, "all", 80)
    document = (folder / REQUEST).read_json()
    # Without a price on range, the variant that moves least is picked.
    (folder / REQUEST).write_json(document | {"grid": [{"strategy": RAISING}, *document["grid"]]})
    current = document["settings"] | {"strategy": RAISING}
    (all_of_it / REQUEST).write_json(document | {"cluster": "all", "grid": [], "settings": current})
    ready = [prepare(str(tmp_path), asked) for asked in (without, folder, all_of_it)]
    failed = run(spark.sparkContext, ready)

    at, error = minute(2), "ZeroDivisionError: no load  [31m at all"
    sentence = f"{RAISING} failed at {at:%Y-%m-%d %H:%M} UTC: {error}"
    whole, table = ((of / TABLE).read_table() for of in (without, folder))
    assert table.schema == whole.schema
    rows = table.to_pylist()
    (row,) = (row for row in rows if row["variant"] == RAISING)
    assert [other for other in rows if other is not row] == whole.to_pylist()
    assert (row["failed_at"], row["error"]) == (at, error)
    assert {row[name] for name in Figures._fields if name != "variant"} == {None}
    assert (row["picked"], row["on_front"], row["samples"]) == (False, False, 16)
    answer, expected = ((of / ANSWER).read_json() for of in (folder, without))
    (named,) = answer.pop("failed")
    assert (named["variant"], datetime.fromisoformat(named["at"]), named["error"]) == (RAISING, at, error)
    assert (answer.pop("failed_count"), answer.pop("variants")) == (1, 7)
    assert {name: answer[name] for name in ("picked", "front")} == {
        name: expected[name] for name in ("picked", "front")
    }
    page = (folder / REPORT).read_bytes().decode()
    assert "Failed variants: 1." in page
    assert f"<li>{escape(sentence)}</li>" in page
    assert f"with: {sentence}" in capsys.readouterr().out
    assert "Failed variants" not in (without / REPORT).read_bytes().decode()

    assert list(failed) == [all_of_it.uri]
    assert f"every variant failed: {CURRENT} failed at" in failed[all_of_it.uri]
    assert "[replay_failed]" in failed[all_of_it.uri]
    assert all_of_it.names() == [REQUEST]


def test_what_cannot_be_replayed_is_said_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = request(tmp_path, "east", 80)
    document = json.loads((tmp_path / "east" / "replays" / "one" / REQUEST).read_text())
    (folder / REQUEST).write_json(document | {"grid": [{"strategy": "AvgSheder"}]})
    later = (minute(0) + timedelta(days=9)).isoformat()
    empty = folder.beside("two")
    (empty / REQUEST).write_json(document | {"start": later, "end": (minute(0) + timedelta(days=10)).isoformat()})
    for command, words in {
        ("--root", str(tmp_path), "--replay", folder.uri): "AvgShedder, ThresholdShedder",
        ("--root", str(tmp_path), "--replay", empty.uri): "has no sample from 2026-03-29",
        ("--root", str(tmp_path), "--replay", empty.beside("three").uri): "[file_missing]",
    }.items():
        assert main(command) == 1
        assert words in capsys.readouterr().err
    monkeypatch.setattr("pulsar_rebalancer.replay.replay_request.MOST_HOURS", 1e-7)
    (folder / REQUEST).write_json(document)
    # What an earlier request led to does not stay beside another one.
    for name in (ANSWER, REPORT, TABLE):
        (folder / name).write_bytes(b"of yesterday")
    assert main(["--root", str(tmp_path), "--replay", folder.uri]) == 1
    assert "6 variants over 16 samples of 2 brokers and 5 bundles would take" in capsys.readouterr().err
    monkeypatch.setattr("pulsar_rebalancer.replay.replay_request.MOST_OUTCOMES", 1000)
    assert main(["--root", str(tmp_path), "--replay", folder.uri]) == 1
    assert "6 variants over 1,500 samples are more than 1,000" in capsys.readouterr().err
    # Nothing is left, and nothing is taken that lay there before.
    assert folder.names() == empty.names() == [REQUEST]
