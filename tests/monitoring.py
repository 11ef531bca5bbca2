import json
import re
from collections.abc import Iterator
from pathlib import Path

import promql_parser
import yaml

FOLDER = Path(__file__).parents[1] / "deploy" / "metrics"
RULES = yaml.safe_load((FOLDER / "alert-rules.yaml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text())


def expressions() -> Iterator[tuple[str, str]]:
    """PromQL, and the text that shows labels of its answer."""
    for rule in RULES:
        yield rule["expr"], re.sub(r"\$labels\.", "", json.dumps(rule["annotations"]))
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


def asked_for() -> set[tuple[str, str]]:
    """Every metric, with each label that is matched, grouped by or shown; the empty label for the metric itself."""
    found: set[tuple[str, str]] = set()
    for expression, shown in expressions():
        parsed = promql_parser.parse(expression)
        labels = {*re.findall(r"\{\{\s*(\w+)\s*\}\}", shown), *re.findall(r"by \(([^)]*)\)", parsed.prettify())}
        labels = {label.strip() for several in labels for label in several.split(",")}
        for selector in selectors(parsed):
            matched = {matcher.name for matcher in selector.matchers.matchers}
            assert selector.name is not None, expression
            found |= {(selector.name, label) for label in {"", *labels, *matched}}
    return found


def selectors(expression: promql_parser.Expr) -> list[promql_parser.VectorSelector]:
    found: list[promql_parser.VectorSelector] = []

    def visit(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.MatrixSelector):
            found.append(node.vector_selector)
        elif isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        return True

    promql_parser.walk(expression, visit)
    return found
