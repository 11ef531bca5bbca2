"""Where files lie, as the environment says."""

import pytest

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer_airflow.locations import STORAGE_VARIABLE, storage_root


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
