"""Which clusters need waves: release notes of Pulsar 4.0.10 and 4.2.1 (apache/pulsar #25518)."""

import pytest
from tests.vectors.rows import brokers_of

from pulsar_rebalancer.strategies.caps import needs_waves


@pytest.mark.parametrize(
    ("version", "needed"),
    [
        *(("4.0.8", True), ("4.0.9", True), ("4.0.10", False), ("4.0.14", False)),
        *(("4.1.0", True), ("4.1.3", True), ("4.2.0", True), ("4.2.1", False), ("4.2.4", False)),
        *(("3.3.7", True), ("2.11.4", True), ("5.0.0", False), ("5.0.1", False), ("10.0.0", False)),
        # Of a distributor, then built from who knows what, then not known at all.
        *(("4.0.10.1", False), ("4.0.9.7", True), ("4.2.1-SNAPSHOT", True), ("5.0.0-M1", True)),
        *((None, True), ("", True), ("4.2", True), ("master", True)),
    ],
)
def test_the_version_says_whether_destinations_are_kept_by_range(version, needed):
    latest = {"broker": "a:1", "version": "5.0.1"}
    brokers = brokers_of([latest, {"broker": "b:1", "version": version}, latest | {"broker": "c:1"}])
    assert needs_waves(brokers) is needed
