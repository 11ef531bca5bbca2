"""Variants, clusters and days dealt out over Spark: the same as one after the other, as table and as report."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.include.pulsar_rebalancer.replay.recorded import FOUR, Run, minute, settings

from pulsar_rebalancer.replay.closed_loop import replay
from pulsar_rebalancer.replay.replay_run import prepare
from pulsar_rebalancer.replay.samples import Recording
from pulsar_rebalancer.replay.snapshots import record
from pulsar_rebalancer.replay.variant_outcome import Agreement, metrics_of
from pulsar_rebalancer.replay.variants import ANSWER, CURRENT_VARIANT, REPORT, REQUEST, TABLE, ReplayRequest
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_spark.replay import run_replays

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
    failed = run_replays(spark.sparkContext, ready)
    # One that fails is named, and takes no other along.
    assert list(failed) == [ready[2].replay_folder.uri]
    assert "[file_missing]" in failed[ready[2].replay_folder.uri]

    asked = ReplayRequest.read(whole)
    target = StoragePath(str(tmp_path / "here"))
    record(ClusterStorage(str(tmp_path), "whole"), asked.settings, asked.start, asked.end, target)
    variants = asked.variants.variants
    *outcomes, recording = replay(Recording.read(target), variants, asked.settings)
    here = [metrics_of(outcome, 16) for outcome in outcomes]
    table = (whole / TABLE).read_table().to_pylist()
    assert [{name: row[name] for name in here[0]._fields} for row in table] == [each._asdict() for each in here]
    assert [row["variant"] for row in table if row["current"]] == [CURRENT_VARIANT]
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
    for words in ("as recorded", "current settings, replayed", "time, UTC", "Pareto front", "picked"):
        assert words in page[page.index("<svg") :]
    agreement = Agreement.compare(recording, next(o for o in outcomes if o.variant == CURRENT_VARIANT), 16)
    assert Agreement.model_validate(answer["agreement"]) == agreement
    assert f"<p>{agreement.sentence}.</p>" in page
    for words in ("16 of 1,500 samples (1.1%)", "extrapolated from 0.3 hours", "2 more combinations left out"):
        assert words in page
    assert "http-equiv" in page
    for outside in ("http://", "https://", "<script", "url(http"):
        assert outside not in page
    assert "<tr class=current><td>" in page
    assert "<tr class=picked><td>" in page
    for folder in (whole, days):
        assert sorted(folder.entry_names()) == sorted({ANSWER, REPORT, REQUEST, TABLE})
    told = capsys.readouterr().out
    for words in (
        "whole: 6 variants; 16 of 1,500 samples",
        "whole: 12 contradictory combinations left out",
        "unloads a day (2 in all)",
        f"whole: {agreement.sentence}",
    ):
        assert words in told
