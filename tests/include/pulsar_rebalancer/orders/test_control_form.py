import re
from typing import Any

import pytest

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.orders.in_force import ACTIONS, parse_control_form

UNTIL = "2027-01-02T06:00:00Z"


@pytest.mark.parametrize("action", sorted(ACTIONS.keys() - {"show", "export"}))
def test_orders_need_a_reason(action: str) -> None:
    chosen = ACTIONS[action]
    subject = "" if re.fullmatch(chosen.subject_pattern, "") else "a/b"
    given = {"action": action, "until": UNTIL if chosen.until else None, "subject": subject}

    with pytest.raises(SettingsError, match="reason"):
        parse_control_form(given | {"reason": "  "})
    assert parse_control_form(given | {"reason": "x"}).reason


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"action": "explode"}, "action"),
        ({"action": "pause", "reason": "x"}, "until"),
        ({"action": "pause", "reason": "x", "until": "2027-01-02T06:00:00"}, "until"),
        ({"action": "skip", "reason": "x", "until": UNTIL}, "until"),
        ({"action": "reset", "reason": "x", "subject": "export-20260102T030405Z.json"}, "subject"),
        ({"action": "restore", "reason": "x", "subject": "/etc/passwd"}, "subject"),
        ({"action": "restore", "reason": "x", "subject": "../export-20260102T030405Z.json"}, "subject"),
        ({"action": "restore", "reason": "x", "subject": "export-20260102T030405Z.json/.."}, "subject"),
        ({"action": "stop", "reason": "x", "by": "root"}, "by"),
        ({"action": "skip_broker", "reason": "x"}, "subject"),
        ({"action": "stop_roll", "reason": "x", "subject": "a:1"}, "subject"),
    ],
)
def test_wrong_form_is_refused(form: dict[str, Any], field: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse_control_form(form)
    assert refused.value.fields.keys() == {field}
