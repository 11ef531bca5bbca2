from pathlib import Path

from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.storage.path import StoragePath


def test_a_finding_says_its_effect_in_the_file_and_takes_it_from_its_reason(tmp_path: Path) -> None:
    run = StoragePath(str(tmp_path))
    written = Validation(findings=(Finding(reason="two_owners", subject="acme/shop/0x00000000_0x10000000"),))

    written.write(run)

    (finding,) = (run / "validation.json").read_json()["findings"]
    assert finding["effect"] == "quarantine"
    assert Validation.read(run) == written
