"""Convert failed expectations to findings, one for each reason and subject."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, NotRequired, TypedDict

from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run.request import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pydantic import JsonValue

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
    """One expectation of a suite."""

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
    """Return one finding for each reason and subject, with all details; within each reason, the worst come first.

    Args:
        results: results of the table's suite, in JSON types.
    """
    seen: dict[str, dict[str, list[_Miss]]] = {}
    for miss in _misses(table, results):
        seen.setdefault(miss.finding.reason, {}).setdefault(miss.finding.subject, []).append(miss)
    return [
        group[0].finding.model_copy(update={"detail": _details(group)})
        for subjects in seen.values()
        for group in sorted(subjects.values(), key=lambda group: -max(miss.excess for miss in group))
    ]


def suite_failed(table: str, detail: str) -> Finding:
    """Return the finding for a table that could not be validated."""
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
    """Return the message of the exception raised by evaluating an expectation; empty if there was none."""
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
