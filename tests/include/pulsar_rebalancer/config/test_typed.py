import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulsar_rebalancer.config.clusters_file import load_clusters, parse_params
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.orders.in_force import parse_control_form
from pulsar_rebalancer.run.request import parse_form


@pytest.fixture
def of_file(tmp_path: Path) -> Callable[[dict[str, Any]], object]:
    def read(settings: dict[str, Any]) -> object:
        file = tmp_path / "clusters.yaml"
        file.write_text(json.dumps({"clusters": {"east": settings}}))  # JSON's escapes are YAML's
        (entry,) = load_clusters(file)
        if entry.error:
            raise SettingsError(*_parts(entry.error))
        return entry

    return read


def _parts(error: str) -> tuple[Any, str]:
    message, _, reason = error.removesuffix("]").rpartition(" [")
    return reason, message


@pytest.fixture(params=["run", "control", "by hand", "file"])
def entered(request: pytest.FixtureRequest, of_file: Callable[[dict[str, Any]], object]) -> list[Callable[[str], Any]]:
    """Every way in for a text, a list of names and a reason."""
    until = "2027-01-01T00:00:00Z"
    ways: dict[str, list[Callable[[str], Any]]] = {
        "run": [
            lambda text: parse_params({"force": text, "force_threshold": 5}),
            lambda text: parse_params({"excluded_namespaces": [f"acme/{text}"]}),
            lambda text: parse_params({"excluded_bundles": [text]}),
        ],
        "control": [
            lambda text: parse_control_form({"action": "stop", "reason": text}),
            lambda text: parse_control_form({"action": "restore", "reason": "lost", "file": text}),
        ],
        "by hand": [
            lambda text: parse_form({"action": "release", "broker": "b:1", "reason": text}),
            lambda text: parse_form({"action": "unload", "bundles": [text]}),
        ],
        "file": [
            lambda text: of_file({"pause": {"until": until, "reason": text}}),
            lambda text: of_file({"excluded_namespaces": [f"acme/{text}"]}),
            lambda text: of_file({"excluded_bundles": [text]}),
        ],
    }
    return ways[request.param]


@pytest.mark.parametrize("text", ["a/\ud800", "a/b\0", "a/\x1b[31m", "a/\x85"])
def test_unstorable_value_is_refused_with_its_field(entered: list[Callable[[str], Any]], text: str) -> None:
    for enter in entered:
        with pytest.raises(SettingsError, match=r"(?s)contains a control character or half of .*\[wrong_setting\]"):
            enter(text)


@pytest.mark.parametrize("text", ["\u200b", " \u3164\n", "\ufeff", "   "])
def test_a_reason_that_nobody_can_see_is_none(entered: list[Callable[[str], Any]], text: str) -> None:
    with pytest.raises(SettingsError, match=r"reason|force"):
        entered[0](text)


@pytest.mark.parametrize("line_break", ["\n", "\r", "\u2028"])
def test_a_text_that_is_typed_is_one_line(entered: list[Callable[[str], Any]], line_break: str) -> None:
    for enter in entered:
        try:
            said = repr(enter(f"x{line_break}root released it"))
        except SettingsError as error:
            said = repr(str(error))
        assert repr(line_break)[1:-1] not in said
