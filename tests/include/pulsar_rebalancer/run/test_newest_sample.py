from datetime import timedelta

import pytest
from tests.include.pulsar_rebalancer.decide.snapshots import NOW, Snapshots

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.request import Finding, RunRequest, Validation
from pulsar_rebalancer.run.snapshot import latest_sample


def test_only_a_young_valid_sample_counts(tmp_path):
    cluster = Snapshots(tmp_path, {"a": {}})
    with pytest.raises(SnapshotError, match="no recent run has validated a sample"):
        latest_sample(cluster.storage, NOW, 300)

    run = cluster.take()
    under_way = cluster.storage.new_run_folder(NOW + timedelta(seconds=60))
    (under_way / "input" / "settings.json").write_json({})
    assert latest_sample(cluster.storage, NOW + timedelta(seconds=300), 300).folder.name == run.name
    shown = cluster.take(after=timedelta(seconds=90))
    RunRequest.read(shown).model_copy(update={"dry_run": True}).write(shown)
    assert latest_sample(cluster.storage, NOW + timedelta(seconds=300), 300).folder.name == run.name
    with pytest.raises(SnapshotError, match=r"is 301 s old; the limit is 300 s \[no_run\]"):
        latest_sample(cluster.storage, NOW + timedelta(seconds=301), 300)

    Validation(findings=(Finding(reason=Reason.TOO_FEW_BROKERS),)).write(run)
    with pytest.raises(SnapshotError, match="validation stopped the latest run: too_few_brokers"):
        latest_sample(cluster.storage, NOW, 300)
