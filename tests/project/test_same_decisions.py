import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripts import same_decisions

MOVE = {"bundle": "t/n/0x0_0x1", "taken": False, "reason": "over_remaining", "traffic": 3.0}
RUN: dict[str, Any] = {
    "run": "east/1",
    "kind": "any",
    "error": "",
    "moves": [MOVE, {"bundle": "t/n/0x1_0x2", "taken": True, "reason": "taken"}],
    "decisions": [{"source": "b:1", "reason": "fired", "explanation": "hot"}],
    "splits": [],
    "state": {"seq": 1, "hits": {"b:1": [0, 2]}},
    "summary": {"hash": "1", "bundle_skip_reasons": {"over_remaining": 1, "same_broker": 2}},
}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda run: None, 0),
        (lambda run: run["moves"].reverse(), 0),
        (lambda run: run["moves"][0].update(traffic=3.1), 1),
        (lambda run: run["moves"].pop(), 1),
        (lambda run: run["state"]["hits"].update({"b:1": [0, 1]}), 1),
        (lambda run: run.update(error="not_whole"), 1),
        (lambda run: run["summary"].update(hash="2"), 0),
        (lambda run: run["state"].update(shadow={"strategy": "x"}, restarts={}), 0),
        (lambda run: run["decisions"][0].update(explanation="hotter"), 1),
    ],
)
def test_every_difference_counts_that_is_not_allowed(tmp_path, change, code):
    assert compared(tmp_path, change) == code


def test_two_codes_become_one(tmp_path, monkeypatch):
    def merged(run: dict[str, Any]) -> None:
        run["moves"][0]["reason"] = "stays"
        run["summary"]["bundle_skip_reasons"] = {"stays": 3}

    assert compared(tmp_path, merged) == 1
    monkeypatch.setattr(same_decisions, "RENAMED", dict.fromkeys(("over_remaining", "same_broker"), "stays"))
    assert compared(tmp_path, merged) == 0


def compared(folder: Path, change: Callable[[dict[str, Any]], None]) -> int:
    changed = copy.deepcopy(RUN)
    change(changed)
    files = [folder / name for name in ("before", "now")]
    for file, run in zip(files, (RUN, changed), strict=True):
        same_decisions.write_lines(file, [run])
    return same_decisions.compare(*files, ignore_texts=False, most=3)
