"""The terminal of `make run` that README shows says what the code says."""

from __future__ import annotations

import ast
import re
from types import SimpleNamespace
from typing import Any

from tests.project.documentation import ROOT, blocks

from pulsar_rebalancer.choices import Strategy
from pulsar_rebalancer.settings import Settings
from pulsar_rebalancer_airflow.embedded.watch import _progress, _scores, _verdict

(SHOWN,) = (block.body.splitlines() for block in blocks() if block.body.startswith("-- starting the simulated cluster"))
RUN = re.compile(
    r"\d\d:\d\d:\d\d  run [\d ]{3} (?P<judged>range +(?P<range>[\d.]+) \((?P<min>[\d.]+) to (?P<max>[\d.]+) %\)  "
    r"pairs over (?P<over>\d+) of (?P<pairs>\d+)(?:, hits (?P<low>\d+)/8 low (?P<high>\d+)/2 high)?  "
    r"(?:fired: (?P<moved>\d+) of|(?P<waiting>waiting)|balanced).*)  \d+\.\d s"
)


def said() -> list[re.Pattern[str]]:
    """What `make run` says, each f-string as a pattern."""
    module = ROOT / "plugins" / "pulsar_rebalancer_airflow" / "embedded" / "__main__.py"
    calls = [node for node in ast.walk(ast.parse(module.read_text())) if _is_say(node)]
    return [re.compile("-- " + _pattern(call.args[0])) for call in calls]


def _is_say(node: Any) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_say"


def _pattern(text: Any) -> str:
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    return "".join(re.escape(part.value) if isinstance(part, ast.Constant) else ".+" for part in parts)


def test_what_is_said_at_the_start() -> None:
    lines = [line for line in SHOWN if line.startswith("-- ")]
    assert len(lines) > 2
    assert [line for line in lines if not any(pattern.fullmatch(line) for pattern in said())] == []


def test_a_line_per_run() -> None:
    lines = [line for line in SHOWN if not line.startswith("-- ")]
    assert len(lines) > 2
    for line in lines:
        found = RUN.fullmatch(line)
        assert found is not None, line
        moved = int(found["moved"] or 0)
        summary: Any = SimpleNamespace(
            score_min=float(found["min"]),
            score_max=float(found["max"]),
            score_range=float(found["range"]),
            pairs_over=int(found["over"]),
            pairs=int(found["pairs"]),
            pairs_fired=int(moved > 0),
            hits=(int(found["low"] or 0), int(found["high"] or 0)),
            bundles_taken=moved,
            reasons={"hits_low": 1} if found["waiting"] else {},
            resolved=SimpleNamespace(settings=Settings(strategy=Strategy.AVG)),
        )
        outcome: Any = SimpleNamespace(moves=[SimpleNamespace(ok=True)] * moved, counts={"moved": moved})
        assert found["judged"] == f"{_scores(summary)}  {_progress(summary)}  {_verdict(summary, outcome)}"
