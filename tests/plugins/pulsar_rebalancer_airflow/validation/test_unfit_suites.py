import json
import math
import shutil

from tests.plugins.pulsar_rebalancer_airflow.validation.validation_sample import Sample, spoiled_broker

from pulsar_rebalancer.decide.validation import suites_folder
from pulsar_rebalancer.reasons import Effect
from pulsar_rebalancer_airflow.suites import validate


def with_suites(tmp_path, name, change):
    folder = tmp_path / "suites"
    shutil.copytree(suites_folder(), folder)
    path = folder / f"{name}.json"
    suite = json.loads(path.read_text())
    change(suite)
    path.write_text(json.dumps(suite))
    return folder


def test_an_expectation_that_cannot_be_evaluated_blocks(tmp_path):
    def rename(suite):
        suite["expectations"][0]["kwargs"]["column"] = "nowhere"

    found = validate(Sample().write(tmp_path), with_suites(tmp_path, "bundles", rename)).findings
    assert [(f.reason, f.effect) for f in found] == [("suite_failed", Effect.BLOCK)]
    assert "nowhere" in found[0].detail


def test_results_are_kept_beside_the_run_and_nothing_elsewhere(tmp_path, monkeypatch):
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(work)
    sample = spoiled_broker(cpu_usage=None)
    sample.bundles = [{**row, "msg_rate_in": math.nan} for row in sample.bundles for _ in range(10)]
    run = sample.write(tmp_path)
    validate(run)
    assert (run / "validation").entry_names() == ["brokers.json", "bundles.json", "cluster.json", "index.html"]
    results = (run / "validation" / "bundles.json").read_json()
    misses = [result for result in results if not result["success"]]
    assert len(misses) == 1
    assert misses[0]["result"]["unexpected_count"] == 60
    assert len(misses[0]["result"]["unexpected_index_list"]) == 20
    assert [*home.rglob("*"), *work.rglob("*")] == []
