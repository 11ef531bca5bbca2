"""The time of every match grows no faster than what people and brokers give; what Java reads otherwise is refused."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pulsar_rebalancer.config.clusters_file import load_clusters, parse_params
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.isolation import parse_isolation, policies_of
from pulsar_rebalancer.orders.in_force import new_exclusion, parse_control_form
from pulsar_rebalancer.orders.order import Control
from pulsar_rebalancer.replay.variants import expand_grid

SIZES = (10, 20, 40)
NAMES = [f"acme/{number:03}{'a' * 60}" for number in range(100)]


def of_policy(size: int, path: Path) -> None:
    policies = parse_isolation({"p": {"namespaces": ["acme/.*" + "(.|a)" * size + "b"], "primary": []}})
    assert policies[0].problems == {}
    assert set(policies_of(policies, NAMES).values()) == {None}


def excludes_none(patterns: Sequence[str]) -> None:
    assert patterns
    present = Settings(excluded_bundles=tuple(patterns))
    assert {
        new_exclusion((Settings(), Control()), (present, Control()), f"{name}/0x0_0xffffffff", ()) for name in NAMES
    } == {None}


def of_run(size: int, path: Path) -> None:
    excludes_none(parse_params({"excluded_bundles": ["*" + "a*" * size + "z"]}).excluded_bundles)


def of_clusters(size: int, path: Path) -> None:
    (path / "clusters.yaml").write_text(f"clusters: {{east: {{excluded_bundles: ['*{'a*' * size}z']}}}}")
    (entry,) = load_clusters(path / "clusters.yaml")
    excludes_none(entry.settings.excluded_bundles)


def of_grid(size: int, path: Path) -> None:
    found = expand_grid([{"excluded_bundles": [["*" + "a*" * size + "z"]]}], Settings())
    excludes_none(found.variants[1].settings.excluded_bundles)


def of_control(size: int, path: Path) -> None:
    parse_control_form({"action": "stop", "reason": "a " * size * 6})
    with pytest.raises(SettingsError):
        parse_control_form({"action": "restore", "reason": "a", "file": "decision-" + "1" * size * 1000})


@pytest.mark.parametrize("match", [of_policy, of_run, of_clusters, of_grid, of_control])
def test_the_time_of_a_match_grows_no_faster_than_the_input(match: Callable[[int, Path], None], tmp_path: Path) -> None:
    def seconds(size: int) -> float:
        started = time.process_time()
        for _ in range(30):  # one is over in a millisecond
            match(size, tmp_path)
        return time.process_time() - started

    match(1, tmp_path)  # imports
    for size in SIZES[1:]:
        ratio = min(seconds(size) for _ in range(3)) / min(seconds(size // 2) for _ in range(3))
        assert ratio < 4, (size, ratio)


@pytest.mark.parametrize("given", [["a" * 257], [f"acme/{number}/*" for number in range(101)], ["a b"], [""]])
def test_patterns_of_bundles_are_few_and_short(given: list[str], tmp_path: Path) -> None:
    def refused(call: Callable[[], Any]) -> str:
        with pytest.raises(SettingsError, match=r"excluded_bundles.*\[wrong_setting\]") as error:
            call()
        return str(error.value)

    refused(lambda: parse_params({"excluded_bundles": given}))
    refused(lambda: expand_grid([{"excluded_bundles": [given]}], Settings()))
