from typing import Any

import pytest

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.run.request import parse_form

POSITIONS = "specified_positions_divide"
BUNDLE = "t/n/0x00000000_0x10000000"
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "action"),
    ({"action": "explode"}, "action"),
    ({"action": "unload"}, "bundles"),
    ({"action": "unload", "bundles": ["no slash"]}, "bundles.0"),
    ({"action": "unload", "bundles": ["t/n/a/b"]}, "bundles.0"),
    ({"action": "unload", "bundles": [BUNDLE] * 1001}, "bundles"),
    ({"action": "unload", "bundles": [BUNDLE], "destination": "http://b:1"}, "destination"),
    ({"action": "unload", "bundles": [BUNDLE], "broker": "b:1"}, "broker"),
    ({"action": "unload", "bundles": [BUNDLE], "overrule": ["caps"]}, "reason"),
    ({"action": "unload", "bundles": [BUNDLE], "overrule": ["even_split"], "reason": "x"}, "overrule"),
    ({"action": "release", "reason": "x"}, "broker"),
    ({"action": "drain", "reason": "x"}, "broker"),
    ({"action": "unload", "bundles": [BUNDLE], "overrule": ["pause"], "reason": "x"}, "overrule.0"),
    *(
        ({"action": "split", "bundles": [BUNDLE], "algorithm": POSITIONS, "positions": [position]}, "positions.0")
        for position in ("0x" + "f" * 5000, "9" * 5000, 1 << 20000, 1 << 32, "0x100000000", -1, "0x", True, 1.5, "nan")
    ),
    ({"action": "split", "bundles": [BUNDLE], "algorithm": POSITIONS, "positions": [0x10000000]}, "positions"),
    ({"action": "split", "bundles": [BUNDLE], "overrule": ["caps"], "reason": "x"}, "overrule"),
    ({"action": "undo"}, "run"),
    ({"action": "fill", "broker": "b:1", "run": "r"}, "run"),
    ({"action": "drain", "broker": "b:1"}, "reason"),
    ({"action": "stop", "reason": "x"}, "action"),
    ({"plan": "abc"}, "plan"),
    ({"action": "unload", "bundles": [BUNDLE], "by": "root"}, "by"),
]


@pytest.mark.parametrize(("form", "field"), REFUSED)
def test_wrong_form_is_refused(form: dict[str, Any], field: str) -> None:
    with pytest.raises(SettingsError, match=field) as refused:
        parse_form(form)

    assert refused.value.reason == "wrong_setting"
    assert refused.value.fields[field.partition(".")[0]]


def test_wrong_fields_have_a_sentence_each() -> None:
    with pytest.raises(SettingsError) as refused:
        parse_form({"action": "release", "destination": "b:1"})

    assert refused.value.fields == {
        "broker": "Choose at least one broker.",
        "reason": "Give a reason; it is recorded.",
        "destination": "release does not use this field.",
    }


def test_fields_beside_a_hash_must_equal_the_plans() -> None:
    shown = parse_form({"action": "unload", "bundles": [BUNDLE], "destination": "b:1"})

    assert parse_form({"plan": "a" * 64}).changed_fields(shown) == []
    assert parse_form({"plan": "a" * 64, "action": "unload", "destination": "b:1"}).changed_fields(shown) == []
    assert parse_form({"plan": "a" * 64, "destination": "c:1"}).changed_fields(shown) == ["destination"]
