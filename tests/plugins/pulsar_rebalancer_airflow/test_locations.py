import pytest
from airflow.sdk.configuration import conf

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer_airflow.options import STORAGE_VARIABLE, clusters_file, storage_root
from pulsar_rebalancer_airflow.provider import SECTION


@pytest.mark.parametrize(
    "root", ["s3://key:s3cret@bucket/runs", "s3://bucket/runs?secret_key=s3cret", "gs://bucket/runs#s3cret"]
)
def test_a_storage_root_with_a_secret_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    monkeypatch.setenv(STORAGE_VARIABLE, root)
    with pytest.raises(SettingsError, match=r"\[pulsar_rebalancer\] storage_root: .*\[wrong_setting\]") as refused:
        storage_root()
    assert "s3cret" not in str(refused.value)


def test_an_unknown_option_in_the_file_is_refused() -> None:
    conf.read_dict({SECTION: {"storage": "/srv"}})
    try:
        with pytest.raises(SettingsError, match=r"storage: unknown option; known: clusters_file, storage_root"):
            clusters_file()
    finally:
        conf.remove_section(SECTION)
