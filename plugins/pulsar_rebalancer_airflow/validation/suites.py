"""Run the suites in `expectations/` on a sample, and convert failed expectations to findings.

Great Expectations and pandas are imported inside functions, because imports at module level would add seconds to every
parse of a DAG file.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Collection, Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run.findings import (
    ENOUGH_SAMPLES,
    enough_brokers,
    interval_below_host_sample,
    one_quarantine_each,
    traffic_in_doubt,
    unexpectedly_left_out,
    unknown_brokers,
    unmatched_patterns,
)
from pulsar_rebalancer.run.request import Finding, RunRequest, Validation
from pulsar_rebalancer.run.snapshot import Snapshot, StateBefore
from pulsar_rebalancer.run.tables import AVERAGES, INPUT, LARGEST, RESOURCES, TRAFFIC
from pulsar_rebalancer.state.state_documents import MovesState
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.shedders.registry import not_recommended, profile_of
from pulsar_rebalancer_airflow.validation.findings import (
    KEYS,
    SHOWN_ROWS,
    Result,
    findings_of,
    suite_failed,
    wording,
    write_page,
)

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


_REPEATED = {"bundles": ["cluster", "broker", "policy"]}
"""Columns that become categorical, by table, because Great Expectations hashes and copies every string in a frame."""


def judged_frames(run: StoragePath, settings: Settings) -> dict[str, pd.DataFrame]:
    """Return the three tables as input for the suites.

    Infinite values become null. In `brokers`, a resource that is not measured (usage and limit of -1) becomes
    0 of 0, as in the broker's score. NaN and infinity in a broker's own averages become infinity, because
    null means that the broker reported no averages. These columns are added:

    * `<resource>_percent`: usage as a percentage of the limit; null if there is no limit;
    * `deciding_resource` and `deciding_percent`: result of `_deciding`;
    * `unaccounted_percent`: the largest difference, over the four traffic values, between the broker's own
      value and the sum over its bundles; 0 if it is at most one unit, null if a value is invalid, because
      invalid values are separate findings.
    """
    read = {name: Snapshot(run).table(name) for name in INPUT}
    frames = {name: table.to_pandas(categories=_REPEATED.get(name)) for name, table in read.items()}
    brokers, bundles = frames["brokers"], frames["bundles"]
    for frame in (brokers, bundles):
        figures = frame.select_dtypes("float").columns
        frame[figures] = frame[figures].replace([math.inf, -math.inf], math.nan)
    for name in AVERAGES:
        brokers.loc[_no_number(read["brokers"][name]), name] = math.inf
    for resource in RESOURCES:
        pair = [f"{resource}_usage", f"{resource}_limit"]
        brokers.loc[(brokers[pair] == -1).all(axis=1), pair] = 0.0
        usage, limit = brokers[pair[0]], brokers[pair[1]]
        brokers[f"{resource}_percent"] = (usage / limit * 100).where(limit > 0)
    looked_at = profile_of(settings).resources
    weights = {name: weight for name in looked_at if (weight := getattr(settings, f"{name}_weight")) > 0}
    deciding = [_deciding(broker, weights) for broker in brokers.to_dict("records")]
    brokers["deciding_resource"] = [name for name, _ in deciding]
    brokers["deciding_percent"] = [percent for _, percent in deciding]
    brokers["unaccounted_percent"] = _unaccounted_percent(brokers, bundles)
    return frames


def _no_number(column: pa.ChunkedArray[Any]) -> list[bool]:
    return [value is not None and not math.isfinite(value) for value in column.to_pylist()]


def _deciding(broker: Mapping[Hashable, Any], weights: Mapping[str, float]) -> tuple[str | None, float]:
    """Return the resource that decides a broker's score, and its usage in percent of the limit.

    That resource has the highest weighted percentage. The result is None and NaN if it is the CPU or the
    broker is idle. If no weighted resource has a limit but some are used, the score is always 0; the result
    is then their names and infinity.
    """
    percent = {name: float(broker[f"{name}_percent"]) for name in weights}
    judged = [name for name in weights if not math.isnan(percent[name])]
    if judged:
        name = max(judged, key=lambda name: percent[name] * weights[name])
        return (None, math.nan) if name == "cpu" else (name, percent[name])
    used = [name for name in weights if broker[f"{name}_usage"] > 0]
    return (" and ".join(used), math.inf) if used else (None, math.nan)


def _unaccounted_percent(brokers: pd.DataFrame, bundles: pd.DataFrame) -> pd.Series[float]:
    traffic = list(TRAFFIC)
    own = brokers.set_index("broker")[traffic]
    sums = bundles.groupby("broker", observed=True)[traffic].sum().reindex(own.index, fill_value=0.0)
    apart = (own - sums).abs()
    percent = (apart / own.where(own > sums, sums) * 100).where(apart > 1, 0.0).max(axis=1)
    unsound = bundles.loc[~(bundles[traffic] >= 0).all(axis=1), "broker"]
    sound = (own >= 0).all(axis=1) & ~own.index.isin(unsound)
    return percent.where(sound).set_axis(brokers.index)


def shares_of(bundles: Collection[str], frames: Mapping[str, pd.DataFrame]) -> dict[str, float]:
    """Return the bundles' share (0 to 1) of each broker's message rate or throughput, whichever is larger.

    The absolute values of negative values are used. A value that is not a number is estimated: the broker's
    own value minus the sum over its other bundles. Brokers without any of the bundles are left out.
    """
    import pandas as pd

    if not bundles:
        return {}
    table, shares = frames["bundles"], {}
    brokers = frames["brokers"].drop_duplicates("broker").set_index("broker")
    named = table["bundle"].astype(str).isin(bundles)
    for measure in ("msg_rate", "msg_throughput"):
        ways = [f"{measure}_in", f"{measure}_out"]
        figures = table[ways].abs().sum(axis=1, skipna=False)
        carried = figures[named].groupby(table["broker"], observed=True)
        left = carried.sum()
        kept = figures[~named].groupby(table["broker"], observed=True).sum().reindex(left.index, fill_value=0.0)
        rest = brokers[ways].sum(axis=1).reindex(left.index) - kept
        left = left.where(carried.count().eq(carried.size()) | ~(rest > left), rest)
        shares[measure] = (left / (left + kept)).fillna(0.0)
    return dict(pd.DataFrame(shares).max(axis=1))


log = logging.getLogger(__name__)

SLACK_SECONDS = 60.0
"""Grace period after the brokers' longest report interval."""

_SEVERITY = {Effect.BLOCK: "critical", Effect.HOLD: "critical", Effect.QUARANTINE: "warning", Effect.WARN: "info"}
"""Great Expectations' severity by effect."""


def validate(run: StoragePath, suites: Path | None = None) -> Validation:
    """Validate the sample of a run; write `validation.json` and, under `validation/`, results and a page.

    Findings with the same reason are sorted worst first. `suites` is a folder with `cluster.json`,
    `brokers.json` and `bundles.json`; None for the package's. Raises SnapshotError if a table is missing or
    damaged, or has another version.
    """
    request = RunRequest.read(run)
    settings = request.resolved.settings
    frames = judged_frames(run, settings)
    findings: list[Finding] = []
    judged: dict[str, list[Result]] = {}
    for name, frame in frames.items():
        try:
            results = _run_suite(name, frame, suites or suites_folder(), parameters(settings))
        except Exception as error:  # a table that cannot be judged must block the run
            log.exception("the suite of table %s could not be run", name)
            findings.append(suite_failed(name, f"{type(error).__name__}: {error}"))
            continue
        findings += findings_of(name, results)
        judged[name] = _storable(results)
        (run / "validation" / f"{name}.json").write_json(judged[name])
    findings = one_quarantine_each(findings)
    # Two brokers may briefly report a bundle that moved.
    shares = shares_of(unexpectedly_left_out(findings, _history(run).unloads), frames)
    findings = one_quarantine_each([*findings, *traffic_in_doubt(shares, settings)])
    samples = dict(zip(frames["brokers"]["broker"], frames["brokers"]["host_samples"], strict=True))
    findings += unknown_brokers(samples, settings)
    findings += unmatched_patterns(frames["bundles"]["bundle"], settings)
    findings += interval_below_host_sample(settings)
    left_out = {finding.subject for finding in findings if finding.effect is Effect.QUARANTINE}
    brokers = frames["brokers"].set_index("broker")["cpu_limit"].drop(list(left_out), errors="ignore")
    findings += not_recommended(settings, brokers)
    findings += enough_brokers(findings, samples, settings)
    validation = Validation(findings=tuple(findings))
    validation.write(run)
    write_page(run, request, validation, judged)
    return validation


def _history(run: StoragePath) -> MovesState:
    try:
        return StateBefore.read(run).moves
    except RebalancerError:
        return MovesState()  # the *decide* task needs the state and reports what is wrong with it


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


def parameters(settings: Settings) -> dict[str, float]:
    """Return the values for the suites' `$PARAMETER`s.

    `report_age_limit_seconds` is the maximum plausible age of a report. Brokers write reports at least every
    loadBalancerReportUpdateMaxIntervalMinutes (ModularLoadManagerImpl.needBrokerDataUpdate), and check this
    every few seconds. `largest_<column>` is the largest plausible value for any machine.
    """
    largest = {f"largest_{column}": figure for column, figure in LARGEST.items()}
    age = settings.report_max_interval_minutes * 60 + SLACK_SECONDS
    return largest | {"report_age_limit_seconds": age, "enough_samples": ENOUGH_SAMPLES}


def _quieten() -> None:
    names = {"great_expectations", *(name for name in logging.root.manager.loggerDict if "great_expectations" in name)}
    for name in names:
        logging.getLogger(name).setLevel(logging.WARNING)


def _run_suite(name: str, frame: pd.DataFrame, folder: Path, values: Mapping[str, float]) -> list[Result]:
    _quieten()
    import great_expectations as gx

    _quieten()  # again, because some of its loggers set their own level when created
    suite = load_suite(folder, name)
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
    results: list[Result] = outcome.to_json_dict()["results"]
    if len(results) != len(suite["expectations"]):
        raise ValueError(f"{len(suite['expectations'])} expectations gave {len(results)} results")
    for result, said in zip(results, outcome.results, strict=True):
        result["wording"] = _wording(said)
    return sorted(results, key=lambda result: int(result["expectation_config"]["meta"]["position"]))


def _wording(said: Any) -> dict[str, str]:
    """Return a result's texts for the page; empty if rendering fails, because the validation must not fail."""
    try:
        return wording(said)
    except Exception as error:
        log.warning("an expectation's result cannot be rendered: %s", type(error).__name__)
        return {"expected": "", "seen": ""}


def _storable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _storable(entry[:SHOWN_ROWS] if _is_rows(key, entry) else entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_storable(entry) for entry in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _is_rows(key: str, entry: Any) -> bool:
    return isinstance(entry, list) and "unexpected" in key
