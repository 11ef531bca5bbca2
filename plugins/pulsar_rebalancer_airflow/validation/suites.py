"""Run the suites in `expectations/` on a sample, and convert failed expectations to findings.

Great Expectations and pandas are imported inside functions, because imports at module level would add seconds to every
parse of a DAG file.
"""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run.quarantine import (
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
from pulsar_rebalancer.run.state_before import StateBefore
from pulsar_rebalancer.run.tables import LARGEST
from pulsar_rebalancer.state.state_documents import MovesState
from pulsar_rebalancer_airflow.validation.findings import KEYS, Result, findings_of, suite_failed
from pulsar_rebalancer_airflow.validation.frames import judged_frames, shares_of
from pulsar_rebalancer_airflow.validation.page import SHOWN_ROWS, wording, write_page

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.storage.path import StoragePath

log = logging.getLogger(__name__)

SLACK_SECONDS = 60.0
"""Grace period after the brokers' longest report interval."""

_SEVERITY = {Effect.BLOCK: "critical", Effect.HOLD: "critical", Effect.QUARANTINE: "warning", Effect.WARN: "info"}
"""Great Expectations' severity by effect."""


def validate(run: StoragePath, suites: Path | None = None) -> Validation:
    """Validate the sample of a run; write `validation.json` and, under `validation/`, each suite's results and a page.

    Findings with the same reason are sorted worst first.

    Args:
        run: the run's folder, with its input.
        suites: folder that contains `cluster.json`, `brokers.json` and `bundles.json`; None for the package's.

    Raises:
        SnapshotError: a table is missing or damaged, or has another version.
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
    """Return the suites' folder: in the package if the wheel is installed, else at the top of the source tree."""
    packaged = Path(__file__).parents[1] / "expectations"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "expectations"


def load_suite(folder: Path, name: str) -> dict[str, Any]:
    """Return a table's suite, with the position, effect and severity added to each expectation."""
    suite: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    for position, expectation in enumerate(suite["expectations"]):
        effect = Reason(expectation["meta"]["reason"]).effect
        expectation["meta"] |= {"position": position, "effect": effect.value}
        expectation["severity"] = _SEVERITY[effect]
    return suite


def parameters(settings: Settings) -> dict[str, float]:
    """Return the values for the suites' `$PARAMETER`s.

    `report_age_limit_seconds` is the maximum plausible age of a report. Brokers write reports at least every
    loadBalancerReportUpdateMaxIntervalMinutes (ModularLoadManagerImpl.needBrokerDataUpdate), and check this every few
    seconds. `largest_<column>` is the largest plausible value for any machine.
    """
    largest = {f"largest_{column}": figure for column, figure in LARGEST.items()}
    age = settings.report_max_interval_minutes * 60 + SLACK_SECONDS
    return largest | {"report_age_limit_seconds": age, "enough_samples": ENOUGH_SAMPLES}


def _quieten() -> None:
    """Keep Great Expectations' messages about registering and loading out of the task log."""
    names = {"great_expectations", *(name for name in logging.root.manager.loggerDict if "great_expectations" in name)}
    for name in names:
        logging.getLogger(name).setLevel(logging.WARNING)


def _run_suite(name: str, frame: pd.DataFrame, folder: Path, values: Mapping[str, float]) -> list[Result]:
    """Return a suite's results as JSON values, in the suite's order, each with Great Expectations' own texts."""
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
    """Return a JSON value without NaN or infinities, and with truncated lists of rows."""
    if isinstance(value, dict):
        return {key: _storable(entry[:SHOWN_ROWS] if _is_rows(key, entry) else entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_storable(entry) for entry in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _is_rows(key: str, entry: Any) -> bool:
    return isinstance(entry, list) and "unexpected" in key
