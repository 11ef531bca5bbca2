"""Run the suites of `expectations/` on a sample and say what each miss means.

Great Expectations and pandas are imported inside functions: at module level they would cost every DAG parse seconds.
"""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pulsar_rebalancer import snapshot
from pulsar_rebalancer.reasons import Effect
from pulsar_rebalancer.run import Finding, RunRequest, Validation
from pulsar_rebalancer.snapshot import RESOURCES, TRAFFIC
from pulsar_rebalancer_airflow.validation_page import SHOWN_ROWS, wording, write_page

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pandas as pd

    from pulsar_rebalancer.settings import Settings
    from pulsar_rebalancer.storage import Folder

log = logging.getLogger(__name__)

KEYS = {"cluster": "cluster", "brokers": "broker", "bundles": "bundle"}
"""The column that names the subject of a miss, by table."""

SLACK_SECONDS = 60.0
"""How much later than the brokers' longest interval a report may be written."""

NOT_COUNTED = frozenset({"just_started"})
"""Reasons that leave a broker out in a healthy cluster: they do not count against `max_quarantined_brokers`."""

_DETAIL_CHARS = 300

Results = list[dict[str, Any]]


def validate(run: Folder, suites: Path | None = None) -> Validation:
    """Judge the sample of a run; write `validation.json` and, below `validation/`, every suite's results and a page.

    Findings of one reason stand worst first.

    Args:
        run: the run's folder, with its input.
        suites: folder of `cluster.json`, `brokers.json` and `bundles.json`; those of the package by default.

    Raises:
        SnapshotError: a table is missing, damaged, or of another version.
    """
    request = RunRequest.read(run)
    settings = request.resolved.settings
    frames = judged_frames(run)
    findings: list[Finding] = []
    judged: dict[str, Results] = {}
    for name, frame in frames.items():
        try:
            results = _run_suite(name, frame, suites or suites_folder(), parameters(settings))
        except Exception as error:  # whatever fails here, nothing may pass unjudged
            log.exception("the suite of table %s could not be run", name)
            findings.append(_suite_failed(name, f"{type(error).__name__}: {error}"))
            continue
        findings += _merged(_misses(name, results))
        judged[name] = _storable(results)
        (run / "validation" / f"{name}.json").write_json(judged[name])
    findings = _one_quarantine_each(findings)
    brokers = list(frames["brokers"]["broker"])
    findings += _unknown_brokers(brokers, settings)
    findings += _enough_brokers(findings, brokers, settings)
    validation = Validation(findings=tuple(findings))
    validation.write(run)
    write_page(run, request, validation, judged)
    return validation


def suites_folder() -> Path:
    """Where the suites are: beside this module in a wheel, at the top of the source tree else."""
    packaged = Path(__file__).parent / "expectations"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "expectations"


def parameters(settings: Settings) -> dict[str, float]:
    """What the suites know as `$PARAMETER`.

    `report_age_limit_seconds`: brokers write their report after loadBalancerReportUpdateMaxIntervalMinutes at the
    latest (ModularLoadManagerImpl.needBrokerDataUpdate), checked every few seconds.
    """
    return {"report_age_limit_seconds": settings.report_max_interval_minutes * 60 + SLACK_SECONDS}


def judged_frames(run: Folder) -> dict[str, pd.DataFrame]:
    """The three tables as the suites see them.

    Infinite figures are null. In `brokers` a resource that is not measured (usage and limit of -1) is 0 of 0, as it
    scores, and there are two kinds of columns more: `<resource>_percent`, usage of limit, null without a limit; and
    `unaccounted_percent`, how far the sum over the broker's bundles is from its own figure in the worst of the four
    traffic figures: 0 when it is at most one unit, null when a figure is unsound, which is named for itself.
    """
    frames = {name: snapshot.read(run, name).to_pandas() for name in snapshot.INPUT}
    brokers, bundles = frames["brokers"], frames["bundles"]
    traffic = list(TRAFFIC)
    for frame in (brokers, bundles):
        figures = frame.select_dtypes("float").columns
        frame[figures] = frame[figures].replace([math.inf, -math.inf], math.nan)
    for resource in RESOURCES:
        pair = [f"{resource}_usage", f"{resource}_limit"]
        brokers.loc[(brokers[pair] == -1).all(axis=1), pair] = 0.0
        usage, limit = brokers[pair[0]], brokers[pair[1]]
        brokers[f"{resource}_percent"] = (usage / limit * 100).where(limit > 0)
    own = brokers.set_index("broker")[traffic]
    sums = bundles.groupby("broker")[traffic].sum().reindex(own.index, fill_value=0.0)
    apart = (own - sums).abs()
    percent = (apart / own.where(own > sums, sums) * 100).where(apart > 1, 0.0).max(axis=1)
    unsound = bundles.loc[~(bundles[traffic] >= 0).all(axis=1), "broker"]
    sound = (own >= 0).all(axis=1) & ~own.index.isin(unsound)
    brokers["unaccounted_percent"] = percent.where(sound).to_numpy()
    return frames


def _run_suite(name: str, frame: pd.DataFrame, folder: Path, values: Mapping[str, float]) -> Results:
    """Results as JSON, in the order of the suite, each with Great Expectations' own words for it."""
    import great_expectations as gx

    suite = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    for position, expectation in enumerate(suite["expectations"]):
        expectation["meta"]["position"] = position
    detail = {column for expectation in suite["expectations"] for column in expectation["meta"].get("detail", ())}
    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = {"globally": False}
    batch = context.data_sources.add_pandas("run").add_dataframe_asset(name).add_batch_definition_whole_dataframe(name)
    outcome = batch.get_batch({"dataframe": frame}).validate(
        gx.ExpectationSuite(**suite),
        expectation_parameters=dict(values),
        result_format={
            "result_format": "COMPLETE",
            "unexpected_index_column_names": [KEYS[name], *sorted(detail)],
        },
    )
    results: Results = outcome.to_json_dict()["results"]
    if len(results) != len(suite["expectations"]):
        raise ValueError(f"{len(suite['expectations'])} expectations gave {len(results)} results")
    for result, said in zip(results, outcome.results, strict=True):
        result["wording"] = _wording(said)
    return sorted(results, key=lambda result: int(result["expectation_config"]["meta"]["position"]))


def _wording(said: Any) -> dict[str, str]:
    """The result in words for the page; without them it is a poorer page, no other verdict."""
    try:
        return wording(said)
    except Exception as error:
        log.warning("an expectation cannot be put into words: %s", type(error).__name__)
        return {"expected": "", "seen": ""}


class _Miss(NamedTuple):
    finding: Finding
    excess: float = 0.0  # how far the figure is beyond what is allowed


def _misses(table: str, results: Iterable[Mapping[str, Any]]) -> Iterator[_Miss]:
    for result in results:
        if result["success"]:
            continue
        config = result["expectation_config"]
        effect, column = Effect(config["meta"]["effect"]), config["kwargs"].get("column", "rows")
        problem = _exception(result.get("exception_info"))
        rows = result["result"].get("unexpected_index_list")
        if problem:
            yield _Miss(_suite_failed(table, f"{config['type']}({column}): {problem}"))
        elif not rows and effect is Effect.QUARANTINE:
            yield _Miss(_suite_failed(table, f"{config['type']}({column}) missed without naming a row"))
        elif not rows:
            shown = _shown(column, result["result"].get("observed_value"))
            yield _Miss(Finding(reason=config["meta"]["reason"], effect=effect, detail=shown))
        for row in rows if rows and not problem else ():
            yield _miss_of_row(table, config, row)


def _miss_of_row(table: str, config: Mapping[str, Any], row: Mapping[str, Any]) -> _Miss:
    meta, column = config["meta"], config["kwargs"]["column"]
    finding = Finding(
        reason=meta["reason"],
        effect=Effect(meta["effect"]),
        subject="" if table == "cluster" else str(row[KEYS[table]]),
        detail=", ".join(_shown(name, row.get(name)) for name in meta.get("detail", [column])),
        cause=str(row["error"]) if column == "error" else "",
    )
    return _Miss(finding, _excess(config["kwargs"], row.get(column)))


def _excess(allowed: Mapping[str, Any], value: Any) -> float:
    if not isinstance(value, int | float) or math.isnan(value):
        return 0.0
    low, high = allowed.get("min_value"), allowed.get("max_value")
    beyond = [low - value if low is not None else 0.0, value - high if high is not None else 0.0]
    return max(0.0, *beyond)


def _exception(info: Any) -> str:
    """The message of what was raised while an expectation was evaluated; empty when nothing was."""
    for entry in [info, *info.values()] if isinstance(info, dict) else ():
        if isinstance(entry, dict) and entry.get("raised_exception") is True:
            return str(entry.get("exception_message") or "raised an exception").splitlines()[0]
    return ""


def _suite_failed(table: str, detail: str) -> Finding:
    return Finding(reason="suite_failed", effect=Effect.BLOCK, detail=f"{table}: {detail}"[:_DETAIL_CHARS])


def _shown(column: str, value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return f"{column} missing"
    return f"{column} {value:g}" if isinstance(value, float) else f"{column} {str(value)[:120]}"


def _merged(misses: Iterable[_Miss]) -> list[Finding]:
    """One finding per reason and subject with everything that was seen, worst first within a reason."""
    seen: dict[str, dict[str, list[_Miss]]] = {}
    for miss in misses:
        seen.setdefault(miss.finding.reason, {}).setdefault(miss.finding.subject, []).append(miss)
    return [
        group[0].finding.model_copy(update={"detail": _details(group)})
        for subjects in seen.values()
        for group in sorted(subjects.values(), key=lambda group: -max(miss.excess for miss in group))
    ]


def _details(group: Iterable[_Miss]) -> str:
    return ", ".join(dict.fromkeys(miss.finding.detail for miss in group))[:_DETAIL_CHARS]


def _one_quarantine_each(findings: Iterable[Finding]) -> list[Finding]:
    """Leave a broker or bundle out once, for the first reason in the order of its suite."""
    kept: list[Finding] = []
    left_out: set[str] = set()
    for finding in findings:
        if finding.effect is Effect.QUARANTINE:
            if finding.subject in left_out:
                continue
            left_out.add(finding.subject)
        kept.append(finding)
    return kept


def _unknown_brokers(brokers: Iterable[str], settings: Settings) -> list[Finding]:
    """Excluded brokers that the cluster does not list: a name that is misspelt excludes nobody."""
    unknown = sorted(set(settings.excluded_brokers) - set(brokers))
    return [Finding(reason="unknown_broker", effect=Effect.WARN, subject=name, detail="not listed") for name in unknown]


def _enough_brokers(findings: Iterable[Finding], brokers: list[str], settings: Settings) -> list[Finding]:
    """Whether what is left can be judged: the result of all other expectations."""
    reasons = {f.subject: f.reason for f in findings if f.effect is Effect.QUARANTINE}
    taking_part = set(brokers) - set(settings.excluded_brokers)
    judged = taking_part - set(reasons)
    counted = [broker for broker in sorted(taking_part & set(reasons)) if reasons[broker] not in NOT_COUNTED]
    found = []
    if len(counted) > settings.max_quarantined_brokers:
        detail = f"{len(counted)} left out, {settings.max_quarantined_brokers} allowed"
        found.append(Finding(reason="too_many_quarantined", effect=Effect.BLOCK, detail=detail))
    if len(judged) < 2:
        detail = f"{len(judged)} of {len(brokers)}"
        found.append(Finding(reason="too_few_brokers", effect=Effect.BLOCK, detail=detail))
    return found


def _storable(value: Any) -> Any:
    """JSON without NaN and infinities, lists of rows cut short."""
    if isinstance(value, dict):
        return {key: _storable(entry[:SHOWN_ROWS] if _is_rows(key, entry) else entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_storable(entry) for entry in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _is_rows(key: str, entry: Any) -> bool:
    return isinstance(entry, list) and "unexpected" in key
