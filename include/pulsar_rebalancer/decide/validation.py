"""What validation expects of a sample: the suites in `expectations/`, the columns that they judge, what follows.

The *validate* task lets Great Expectations run the suites; `validate_run` needs only Arrow, and finds the same.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import JsonValue

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run.findings import (
    MIN_HOST_SAMPLES,
    blocking_findings,
    drop_repeated_quarantines,
    spread_findings,
    traffic_findings,
    unexpected_quarantines,
    unmatched_exclusions,
)
from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import AVERAGES, BROKERS, LARGEST, RESOURCES, TIME_TYPE, TRAFFIC, Row
from pulsar_rebalancer.strategies.shedders.registry import profile_of, settings_findings

KEYS = {"cluster": "cluster", "brokers": "broker", "bundles": "bundle"}
"""The column, by table, that names the cluster, broker or bundle of a finding."""

REPORT_SLACK_SECONDS = 60.0
"""Seconds by which a report may be older than the brokers' longest report interval."""

_MAX_DETAIL_CHARS = 300

_SEVERITY = {Effect.BLOCK: "critical", Effect.HOLD: "critical", Effect.QUARANTINE: "warning", Effect.WARN: "info"}
"""Severity in Great Expectations, by effect."""


def validate_run(run: Snapshot, moved_bundles: Collection[str] = ()) -> Validation:
    """Validate the sample of a run, and write `validation.json`. `moved_bundles` are bundles that moved recently."""
    tables, values, findings = suite_tables(run), suite_parameters(run.settings), list[Finding]()
    for name, table in tables.items():
        findings += suite_findings(name, _evaluate(table, KEYS[name], load_suite(suites_folder(), name), values))
    validation = make_validation(findings, tables, run.settings, moved_bundles)
    validation.write(run.folder)
    return validation


def make_validation(
    findings: Iterable[Finding], tables: Mapping[str, pa.Table], settings: Settings, moved_bundles: Collection[str]
) -> Validation:
    """Return the suites' findings, and those that follow from them or from the settings."""
    found = drop_repeated_quarantines(findings)
    # Two brokers may briefly report a bundle that moved.
    shares = left_out_traffic_shares(unexpected_quarantines(found, moved_bundles), tables)
    found = drop_repeated_quarantines([*found, *traffic_findings(shares)])
    brokers = tables["brokers"].select(["broker", "host_samples", "cpu_limit"]).to_pylist()
    samples = {row["broker"]: math.nan if row["host_samples"] is None else row["host_samples"] for row in brokers}
    found += unmatched_exclusions(samples, tables["bundles"]["bundle"], settings)
    left_out = {finding.subject for finding in found if finding.effect is Effect.QUARANTINE}
    limits = [row["cpu_limit"] or 0.0 for row in brokers if row["broker"] not in left_out]
    found += [*settings_findings(settings, limits), *spread_findings(tables["bundles"], len(limits), left_out)]
    found += blocking_findings(found, samples, settings)
    return Validation(findings=tuple(found))


def suites_folder() -> Path:
    """Return the folder of the suites: in the package if the wheel is installed, else in the source tree."""
    packaged = Path(__file__).parents[1] / "expectations"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "expectations"


def load_suite(folder: Path, name: str) -> dict[str, Any]:
    suite: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    for position, expectation in enumerate(suite["expectations"]):
        effect = Reason(expectation["meta"]["reason"]).effect
        expectation["meta"] |= {"position": position, "effect": effect.value}
        expectation["severity"] = _SEVERITY[effect]
    return suite


def suite_parameters(settings: Settings) -> dict[str, float]:
    """Return the values for the suites' `$PARAMETER`s.

    `report_age_limit_seconds` is the maximum plausible age of a report. Brokers write reports at least every
    loadBalancerReportUpdateMaxIntervalMinutes (ModularLoadManagerImpl.needBrokerDataUpdate), and check this
    every few seconds. `largest_<column>` is the largest plausible value for any machine.
    """
    largest = {f"largest_{column}": value for column, value in LARGEST.items()}
    age = settings.report_max_interval_minutes * 60 + REPORT_SLACK_SECONDS
    return largest | {"report_age_limit_seconds": age, "enough_samples": MIN_HOST_SAMPLES}


_DERIVED = {f"{resource}_percent": pa.float64() for resource in RESOURCES} | {
    "deciding_resource": pa.string(),
    "deciding_percent": pa.float64(),
    "unaccounted_percent": pa.float64(),
}
_JUDGED_BROKERS = pa.schema({column.name: column.type for column in BROKERS if column.type != TIME_TYPE} | _DERIVED)


def suite_tables(run: Snapshot) -> dict[str, pa.Table]:
    """Return the three tables as input for the suites.

    Infinite values and NaN become null. In `brokers`, which has no times, a resource that is not measured (usage
    and limit of -1) becomes 0 of 0, as in the broker's score. NaN and infinity in a broker's own averages become
    infinity, because null means that the broker reported no averages. These columns are added:

    * `<resource>_percent`: usage as a percentage of the limit; null if there is no limit;
    * `deciding_resource` and `deciding_percent`: the resource that makes the score, and its percentage;
    * `unaccounted_percent`: the largest difference, over the four traffic values, between the broker's own
      value and the sum over its bundles; 0 if it is at most one unit, null if a value is invalid, because
      invalid values are separate findings.
    """
    bundles = run.read_table("bundles")
    for name in TRAFFIC:
        finite = pc.if_else(pc.is_finite(bundles[name]), bundles[name], pa.scalar(None, pa.float64()))
        bundles = bundles.set_column(bundles.schema.get_field_index(name), name, finite)
    brokers = run.read_table("brokers").select([name for name in _JUDGED_BROKERS.names if name not in _DERIVED])
    weights = {
        name: weight
        for name in profile_of(run.settings).resources
        if (weight := getattr(run.settings, f"{name}_weight")) > 0
    }
    carried = _bundle_sums_by_broker(bundles)
    rows = [_suite_broker_row(row, weights, carried) for row in brokers.to_pylist()]
    judged = pa.Table.from_pylist(rows, schema=_JUDGED_BROKERS)
    return {"cluster": run.read_table("cluster"), "brokers": judged, "bundles": bundles}


def _suite_broker_row(row: Row, weights: Mapping[str, float], bundle_sums: Mapping[str, Row]) -> Row:
    for name, value in row.items():
        if isinstance(value, float) and not math.isfinite(value):
            row[name] = math.inf if name in AVERAGES else None
    for resource in RESOURCES:
        pair = (f"{resource}_usage", f"{resource}_limit")
        if row[pair[0]] == row[pair[1]] == -1:
            row |= dict.fromkeys(pair, 0.0)
        usage, limit = row[pair[0]], row[pair[1]]
        row[f"{resource}_percent"] = usage / limit * 100 if usage is not None and (limit or 0) > 0 else None
    row["deciding_resource"], row["deciding_percent"] = _bottleneck_and_percent(row, weights)
    row["unaccounted_percent"] = _unaccounted_percent(row, bundle_sums.get(row["broker"], {}))
    return row


def _bottleneck_and_percent(broker: Row, weights: Mapping[str, float]) -> tuple[str | None, float | None]:
    """Return the resource that decides a broker's score, and its usage in percent of the limit.

    That resource has the highest weighted percentage. The result is None and None if it is the CPU or the
    broker is idle. If no weighted resource has a limit but some are used, the score is always 0; the result
    is then their names and infinity.
    """
    percent = {name: broker[f"{name}_percent"] for name in weights if broker[f"{name}_percent"] is not None}
    if percent:
        name = max(percent, key=lambda name: percent[name] * weights[name])
        return (None, None) if name == "cpu" else (name, percent[name])
    used = [name for name in weights if (broker[f"{name}_usage"] or 0) > 0]
    return (" and ".join(used), math.inf) if used else (None, None)


def _bundle_sums_by_broker(bundles: pa.Table) -> dict[str, Row]:
    """Return the sums over each broker's bundles; `sound` is whether all their values are valid."""
    sound: Any = True
    for name in TRAFFIC:
        valid: Any = pc.coalesce(pc.greater_equal(bundles[name], pa.scalar(0.0)), pa.scalar(False))
        sound = pc.and_(sound, valid)
    table = bundles.select(["broker", *TRAFFIC]).append_column("sound", sound)
    sums = table.group_by("broker").aggregate([*((name, "sum") for name in TRAFFIC), ("sound", "all")])
    return {row["broker"]: row for row in sums.to_pylist()}


def _unaccounted_percent(broker: Row, bundle_sums: Row) -> float | None:
    own = {name: broker[name] for name in TRAFFIC}
    if not bundle_sums.get("sound_all", True) or not all(value is not None and value >= 0 for value in own.values()):
        return None
    sums = {name: bundle_sums.get(f"{name}_sum") or 0.0 for name in TRAFFIC}
    apart = {name: abs(own[name] - sums[name]) for name in TRAFFIC}
    return max(apart[name] / max(own[name], sums[name]) * 100 if apart[name] > 1 else 0.0 for name in TRAFFIC)


def left_out_traffic_shares(bundles: Collection[str], tables: Mapping[str, pa.Table]) -> dict[str, float]:
    """Return the bundles' share (0 to 1) of each broker's message rate or throughput, whichever is larger.

    The absolute values of negative values are used. A value that is not a number is estimated: the broker's
    own value minus the sum over its other bundles. Brokers without any of the bundles are left out.
    """
    shares: dict[str, float] = {}
    if not bundles:
        return shares
    table, own = tables["bundles"], {row["broker"]: row for row in reversed(tables["brokers"].to_pylist())}
    named = pc.is_in(table["bundle"], pa.array(list(bundles), pa.string()))
    for measure in ("msg_rate", "msg_throughput"):
        ways = [f"{measure}_in", f"{measure}_out"]
        values: Any = pc.add(*(pc.abs(table[way]) for way in ways))
        parts = pa.table([table["broker"], named, values, pc.is_null(values)], names=["broker", "named", "of", "gap"])
        grouped = parts.group_by(["broker", "named"]).aggregate([("of", "sum"), ("gap", "any")]).to_pylist()
        kept = {row["broker"]: row["of_sum"] or 0.0 for row in grouped if not row["named"]}
        for row in (row for row in grouped if row["named"]):
            left, others, broker = row["of_sum"] or 0.0, kept.get(row["broker"], 0.0), own.get(row["broker"], {})
            if row["gap_any"]:
                left = max(left, sum(broker.get(way) or 0.0 for way in ways) - others)
            share = left / (left + others) if left + others else 0.0
            shares[row["broker"]] = max(shares.get(row["broker"], 0.0), share)
    return shares


class ExpectationArguments(TypedDict, total=False):
    """An expectation's arguments, reduced to those used here: the column and what is allowed."""

    column: str
    min_value: float | None
    max_value: float | None
    value_set: list[JsonValue]
    regex: str
    value: int


class ExpectationMeta(TypedDict):
    """An expectation's metadata; `load_suite` adds the expectation's position in the suite and its effect."""

    reason: str
    position: int
    effect: str
    detail: NotRequired[list[str]]
    notes: NotRequired[str]


class Expectation(TypedDict):
    type: str
    kwargs: ExpectationArguments
    meta: ExpectationMeta


class ObservedResult(TypedDict, total=False):
    """The observed result: the rows that failed, or a single value."""

    unexpected_index_list: list[dict[str, JsonValue]] | None
    observed_value: JsonValue


class Result(TypedDict):
    """Great Expectations' result for one expectation: the fields used here, and the text for the page."""

    success: bool
    expectation_config: Expectation
    result: ObservedResult
    exception_info: NotRequired[JsonValue]
    wording: dict[str, str]


def _out_of_range(column: Any, arguments: ExpectationArguments) -> Any:
    least, most = arguments.get("min_value"), arguments.get("max_value")
    column = pc.cast(column, pa.float64(), safe=False)  # a count may have more digits than a float
    below = pc.less(column, pa.scalar(-math.inf if least is None else float(least)))
    return pc.or_(below, pc.greater(column, pa.scalar(math.inf if most is None else float(most))))


def _in_forbidden_set(column: Any, arguments: ExpectationArguments) -> Any:
    return pc.is_in(column, pa.array(arguments["value_set"], column.type))


def _not_matching_regex(column: Any, arguments: ExpectationArguments) -> Any:
    # Arrow's expressions know no `\Z`.
    unlike = (text is not None and not re.match(arguments["regex"], text) for text in column.to_pylist())
    return pa.array(unlike, pa.bool_())


_UNEXPECTED_BY_TYPE: Mapping[str, Callable[[Any, ExpectationArguments], Any]] = {
    "be_null": lambda column, _: pc.is_valid(column),
    "not_be_null": lambda column, _: pc.is_null(column),
    "be_between": _out_of_range,
    "be_in_set": lambda column, allowed: pc.and_(pc.is_valid(column), pc.invert(_in_forbidden_set(column, allowed))),
    "not_be_in_set": _in_forbidden_set,
    "match_regex": _not_matching_regex,
}
"""Functions that mark unexpected values, by expectation type. Null values pass, as in Great Expectations."""


def _evaluate(table: pa.Table, key: str, suite: Mapping[str, Any], params: Mapping[str, float]) -> Iterator[Result]:
    for config in suite["expectations"]:
        allowed: Any = {
            name: params[given["$PARAMETER"]] if isinstance(given, dict) else given
            for name, given in config["kwargs"].items()
        }
        seen: ObservedResult = {"observed_value": table.num_rows, "unexpected_index_list": []}
        success = "column" in allowed or table.num_rows == allowed["value"]
        if "column" in allowed:
            column = table[allowed["column"]]
            missed = _UNEXPECTED_BY_TYPE[config["type"].removeprefix("expect_column_values_to_")](column, allowed)
            shown = dict.fromkeys([key, allowed["column"], *config["meta"].get("detail", ())])
            seen["unexpected_index_list"] = table.filter(missed).select(list(shown)).to_pylist()
            success = not seen["unexpected_index_list"]
        judged: Any = config | {"kwargs": allowed}
        yield {"success": success, "expectation_config": judged, "result": seen, "wording": {}}


class _FailedRow(NamedTuple):
    finding: Finding
    excess_over_bound: float = 0.0  # distance of the value from the allowed range


def suite_findings(table: str, results: Iterable[Result]) -> list[Finding]:
    """Return one finding for each reason and subject, with all details; within each reason, worst first."""
    seen: dict[str, dict[str, list[_FailedRow]]] = {}
    for miss in _failed_rows(table, results):
        seen.setdefault(miss.finding.reason, {}).setdefault(miss.finding.subject, []).append(miss)
    return [
        group[0].finding.model_copy(update={"detail": _details_text(group)})
        for subjects in seen.values()
        for group in sorted(subjects.values(), key=lambda group: -max(miss.excess_over_bound for miss in group))
    ]


def suite_failure(table: str, detail: str) -> Finding:
    return Finding(reason=Reason.SUITE_FAILED, detail=f"{table}: {detail}"[:_MAX_DETAIL_CHARS])


def _failed_rows(table: str, results: Iterable[Result]) -> Iterator[_FailedRow]:
    for result in results:
        if result["success"]:
            continue
        config = result["expectation_config"]
        reason, column = Reason(config["meta"]["reason"]), config["kwargs"].get("column", "rows")
        problem = _exception_text(result.get("exception_info"))
        rows = result["result"].get("unexpected_index_list")
        if problem:
            yield _FailedRow(suite_failure(table, f"{config['type']}({column}): {problem}"))
        elif not rows and reason.effect is Effect.QUARANTINE:
            yield _FailedRow(suite_failure(table, f"{config['type']}({column}) failed, but the result lists no row"))
        elif not rows:
            yield _FailedRow(Finding(reason=reason, detail=_value_text(column, result["result"].get("observed_value"))))
        for row in rows if rows and not problem else ():
            yield _failed_row(table, config, row)


def _failed_row(table: str, config: Expectation, row: Mapping[str, JsonValue]) -> _FailedRow:
    meta, column = config["meta"], config["kwargs"]["column"]
    finding = Finding(
        reason=meta["reason"],
        subject="" if table == "cluster" else str(row[KEYS[table]]),
        detail=", ".join(_value_text(name, row.get(name)) for name in meta.get("detail", [column])),
        cause=str(row["error"]) if column == "error" else "",
    )
    return _FailedRow(finding, _excess_over_bound(config["kwargs"], row.get(column)))


def _excess_over_bound(arguments: ExpectationArguments, value: JsonValue) -> float:
    if not isinstance(value, int | float) or math.isnan(value):
        return 0.0
    low, high = arguments.get("min_value"), arguments.get("max_value")
    beyond = [low - value if low is not None else 0.0, value - high if high is not None else 0.0]
    return max(0.0, *beyond)


def _exception_text(exception_info: JsonValue) -> str:
    for entry in [exception_info, *exception_info.values()] if isinstance(exception_info, dict) else ():
        if isinstance(entry, dict) and entry.get("raised_exception") is True:
            return str(entry.get("exception_message") or "raised an exception").splitlines()[0]
    return ""


def _value_text(column: str, value: JsonValue) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return f"{column} missing"
    # In pandas, whole numbers are floats if one is missing.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{column} {value:g}" if is_number else f"{column} {str(value)[:120]}"


def _details_text(failed_rows: Iterable[_FailedRow]) -> str:
    return ", ".join(dict.fromkeys(miss.finding.detail for miss in failed_rows))[:_MAX_DETAIL_CHARS]
