"""Where files lie, as the environment says."""

import pytest

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer_airflow.locations import STORAGE_VARIABLE, rebalance_dags, storage_root


@pytest.mark.parametrize(
    "root", ["s3://key:s3cret@bucket/runs", "s3://bucket/runs?secret_key=s3cret", "gs://bucket/runs#s3cret"]
)
def test_a_storage_root_with_a_secret_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    monkeypatch.setenv(STORAGE_VARIABLE, root)
    with pytest.raises(SettingsError, match=STORAGE_VARIABLE) as refused:
        storage_root()
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("root", ["s3://bucket/runs", "/srv/a@b/what?"])
def test_other_roots_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    monkeypatch.setenv(STORAGE_VARIABLE, root)
    assert storage_root() == root


def test_a_broken_entry_takes_the_place_of_no_other() -> None:
    known = [("a", "wrong"), ("a__broken_1", ""), ("a", ""), ("b", "wrong")]
    entries = [ClusterEntry(name=name, given={}, settings=Settings(), error=error) for name, error in known]
    assert {dag_id: (entry.name, entry.error) for dag_id, entry in rebalance_dags(entries).items()} == {
        "pulsar_rebalance__a": ("a", ""),
        "pulsar_rebalance__a__broken_1": ("a__broken_1", ""),
        "pulsar_rebalance__a__broken_2": ("a", "wrong"),
        "pulsar_rebalance__b": ("b", "wrong"),
    }
