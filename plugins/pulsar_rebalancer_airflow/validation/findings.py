"""Convert failed expectations to findings, one for each reason and subject."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import Template
from typing import Any, NamedTuple, NotRequired, TypedDict

from pydantic import JsonValue

from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run.findings import QUOTED, explain
from pulsar_rebalancer.run.request import Finding, RunRequest, Validation
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.texts import one_line

KEYS = {"cluster": "cluster", "brokers": "broker", "bundles": "bundle"}
"""The column that names a finding's subject, by table."""

_DETAIL_CHARS = 300


class Arguments(TypedDict, total=False):
    """An expectation's arguments, reduced to those used here: the column and the allowed range."""

    column: str
    min_value: float | None
    max_value: float | None


class Meta(TypedDict):
    """An expectation's metadata; `load_suite` adds the expectation's position in the suite and its effect."""

    reason: str
    position: int
    effect: str
    detail: NotRequired[list[str]]
    notes: NotRequired[str]


class Expectation(TypedDict):
    type: str
    kwargs: Arguments
    meta: Meta


class Seen(TypedDict, total=False):
    """The observed result: the rows that failed, or a single value."""

    unexpected_index_list: list[dict[str, JsonValue]] | None
    observed_value: JsonValue


class Result(TypedDict):
    """Great Expectations' result for one expectation: the fields used here, and the text for the page."""

    success: bool
    expectation_config: Expectation
    result: Seen
    exception_info: NotRequired[JsonValue]
    wording: dict[str, str]


class _Miss(NamedTuple):
    finding: Finding
    excess: float = 0.0  # distance of the figure from the allowed range


def findings_of(table: str, results: Iterable[Result]) -> list[Finding]:
    """Return one finding for each reason and subject, with all details; within each reason, worst first."""
    seen: dict[str, dict[str, list[_Miss]]] = {}
    for miss in _misses(table, results):
        seen.setdefault(miss.finding.reason, {}).setdefault(miss.finding.subject, []).append(miss)
    return [
        group[0].finding.model_copy(update={"detail": _details(group)})
        for subjects in seen.values()
        for group in sorted(subjects.values(), key=lambda group: -max(miss.excess for miss in group))
    ]


def suite_failed(table: str, detail: str) -> Finding:
    return Finding(reason=Reason.SUITE_FAILED, detail=f"{table}: {detail}"[:_DETAIL_CHARS])


def _misses(table: str, results: Iterable[Result]) -> Iterator[_Miss]:
    for result in results:
        if result["success"]:
            continue
        config = result["expectation_config"]
        reason, column = Reason(config["meta"]["reason"]), config["kwargs"].get("column", "rows")
        problem = _exception(result.get("exception_info"))
        rows = result["result"].get("unexpected_index_list")
        if problem:
            yield _Miss(suite_failed(table, f"{config['type']}({column}): {problem}"))
        elif not rows and reason.effect is Effect.QUARANTINE:
            yield _Miss(suite_failed(table, f"{config['type']}({column}) missed without naming a row"))
        elif not rows:
            yield _Miss(Finding(reason=reason, detail=_shown(column, result["result"].get("observed_value"))))
        for row in rows if rows and not problem else ():
            yield _miss_of_row(table, config, row)


def _miss_of_row(table: str, config: Expectation, row: Mapping[str, JsonValue]) -> _Miss:
    meta, column = config["meta"], config["kwargs"]["column"]
    finding = Finding(
        reason=meta["reason"],
        subject="" if table == "cluster" else str(row[KEYS[table]]),
        detail=", ".join(_shown(name, row.get(name)) for name in meta.get("detail", [column])),
        cause=str(row["error"]) if column == "error" else "",
    )
    return _Miss(finding, _excess(config["kwargs"], row.get(column)))


def _excess(allowed: Arguments, value: JsonValue) -> float:
    if not isinstance(value, int | float) or math.isnan(value):
        return 0.0
    low, high = allowed.get("min_value"), allowed.get("max_value")
    beyond = [low - value if low is not None else 0.0, value - high if high is not None else 0.0]
    return max(0.0, *beyond)


def _exception(info: JsonValue) -> str:
    for entry in [info, *info.values()] if isinstance(info, dict) else ():
        if isinstance(entry, dict) and entry.get("raised_exception") is True:
            return str(entry.get("exception_message") or "raised an exception").splitlines()[0]
    return ""


def _shown(column: str, value: JsonValue) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return f"{column} missing"
    return f"{column} {value:g}" if isinstance(value, float) else f"{column} {str(value)[:120]}"


def _details(group: Iterable[_Miss]) -> str:
    return ", ".join(dict.fromkeys(miss.finding.detail for miss in group))[:_DETAIL_CHARS]


log = logging.getLogger(__name__)

SHOWN_ROWS = 20
"""Maximum number of failed rows kept and shown per expectation."""

SHOWN_FINDINGS = 200
"""Maximum number of findings listed on the page."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Content security policy of the page: allow inline styles and nothing else."""


def page_of(run: StoragePath) -> StoragePath:
    """Return the path of a run's validation page."""
    return run / "validation" / "index.html"


def wording(result: Any) -> dict[str, str]:
    """Return the wording of Data Docs for an `ExpectationValidationResult`, by key: `expected` and `seen`.

    As a side effect, the lists of rows in the result are truncated.
    """
    from great_expectations.render.renderer.content_block import ValidationResultsTableContentBlockRenderer

    for key, entry in result.result.items():
        if isinstance(entry, list):
            result.result[key] = entry[:SHOWN_ROWS]
    _, expected, seen = ValidationResultsTableContentBlockRenderer.render([result]).to_json_dict()["table"][0]
    return {"expected": " ".join(_texts(expected)), "seen": " ".join(_texts(seen))}


def _texts(block: Any) -> Iterator[str]:
    """Yield the sentences in a content block, without tables of rows or hints about queries for such rows."""
    if isinstance(block, list):
        for part in block:
            yield from _texts(part)
    elif isinstance(block, dict):
        sentence = block.get("string_template")
        if sentence:
            values = {name: one_line(str(value), QUOTED) for name, value in sentence.get("params", {}).items()}
            yield Template(sentence["template"]).safe_substitute(values).strip()
    else:
        yield one_line(str(block), QUOTED)


def write_page(
    run: StoragePath, request: RunRequest, validation: Validation, results: Mapping[str, Sequence[Result]]
) -> None:
    """Write the page. An error is only logged, because the page does not affect the validation."""
    try:
        page_of(run).write_bytes(_page(run, request, validation, results).encode(errors="replace"))
    except Exception:
        log.warning("the page of the validation result could not be written", exc_info=True)


def _page(
    run: StoragePath, request: RunRequest, validation: Validation, results: Mapping[str, Sequence[Result]]
) -> str:
    # Imported here so that only the validating task loads it.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("pulsar_rebalancer_airflow")
    views = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return views.get_template("validation.html").render(
        policy=POLICY,
        run=run,
        request=request,
        explanation=explain(validation),
        findings=[
            (f.effect, f.reason, one_line(f.subject, QUOTED), one_line(f.detail, QUOTED))
            for f in validation.findings[:SHOWN_FINDINGS]
        ],
        more_findings=max(0, len(validation.findings) - SHOWN_FINDINGS),
        tables={name: [_row(result) for result in rows] for name, rows in results.items()},
    )


def _row(result: Result) -> dict[str, bool | str | list[str]]:
    config = result["expectation_config"]
    rows = result["result"].get("unexpected_index_list") or []
    return {
        "met": result["success"],
        "column": config["kwargs"].get("column", "rows"),
        "reason": config["meta"]["reason"],
        "effect": config["meta"]["effect"],
        "notes": config["meta"].get("notes", ""),
        **result["wording"],
        "rows": [", ".join(f"{name}: {one_line(str(value), QUOTED)}" for name, value in row.items()) for row in rows],
    }
