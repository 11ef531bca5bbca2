"""Where files lie, as Airflow's configuration says."""

import os
from pathlib import Path

import pytest
from airflow.sdk.configuration import conf

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer_airflow.options import STORAGE_VARIABLE, VARIABLES, clusters_file, rebalance_dags, storage_root
from pulsar_rebalancer_airflow.provider import SECTION


@pytest.mark.parametrize(
    "root", ["s3://key:s3cret@bucket/runs", "s3://bucket/runs?secret_key=s3cret", "gs://bucket/runs#s3cret"]
)
def test_a_storage_root_with_a_secret_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    monkeypatch.setenv(STORAGE_VARIABLE, root)
    with pytest.raises(SettingsError, match=r"\[pulsar_rebalancer\] storage_root: .*\[wrong_setting\]") as refused:
        storage_root()
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("root", ["s3://bucket/runs", "/srv/a@b/what?"])
def test_other_roots_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    monkeypatch.setenv(STORAGE_VARIABLE, root)
    assert storage_root() == root


def test_without_options_files_lie_in_airflows_home() -> None:
    home = Path(os.environ["AIRFLOW_HOME"])
    assert clusters_file() == home / "config" / "pulsar_clusters.yaml"
    assert storage_root() == str(home / "pulsar_rebalancer")


def test_an_unknown_option_in_the_file_is_refused() -> None:
    conf.read_dict({SECTION: {"storage": "/srv"}})
    try:
        with pytest.raises(SettingsError, match=r"storage: unknown option; known: clusters_file, storage_root"):
            clusters_file()
    finally:
        conf.remove_section(SECTION)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("CLUSTERS_FILE", "clusters.yaml", "'clusters.yaml' is not an absolute path"),
        ("CLUSTERS_FILE", "", "'' is not an absolute path"),
        ("STORAGE_ROOT", "runs", "'runs' is not an absolute path"),
        ("CLUSTER_FILE", "/etc/clusters.yaml", "unknown option; known: clusters_file, storage_root"),
        ("STORAGE_ROOT_CMD", "cat /run/secrets/root", "unknown option"),
    ],
)
def test_a_wrong_option_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str, problem: str) -> None:
    monkeypatch.setenv(f"{VARIABLES}{name}", value)
    message = rf"\[pulsar_rebalancer\] {name.lower()}: {problem}.*\[wrong_setting\]"
    with pytest.raises(SettingsError, match=message):
        (storage_root if name.startswith("STORAGE") else clusters_file)()


def test_a_broken_entry_takes_the_place_of_no_other() -> None:
    known = [("a", "wrong"), ("a__broken_1", ""), ("a", ""), ("b", "wrong")]
    entries = [ClusterEntry(name=name, given={}, settings=Settings(), error=error) for name, error in known]
    assert {dag_id: (entry.name, entry.error) for dag_id, entry in rebalance_dags(entries).items()} == {
        "pulsar_rebalance__a": ("a", ""),
        "pulsar_rebalance__a__broken_1": ("a__broken_1", ""),
        "pulsar_rebalance__a__broken_2": ("a", "wrong"),
        "pulsar_rebalance__b": ("b", "wrong"),
    }
