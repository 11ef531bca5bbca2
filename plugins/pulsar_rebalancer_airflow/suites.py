"""Run the suites in `expectations/` on a sample, convert failed expectations to findings, make their page, link to it.

Great Expectations and pandas are imported inside functions, because imports at module level would add seconds to every
parse of a DAG file.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

from pulsar_rebalancer.decide.validation import (
    KEYS,
    Expectation,
    Result,
    load_suite,
    make_validation,
    suite_failure,
    suite_findings,
    suite_parameters,
    suite_tables,
    suites_folder,
)
from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.run.findings import MAX_QUOTED, explain_validation
from pulsar_rebalancer.run.request import Finding, RunRequest, Validation
from pulsar_rebalancer.run.snapshot import Snapshot, StateBefore
from pulsar_rebalancer.state import MovesState
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.texts import one_line
from pulsar_rebalancer_airflow.options import PREFIX

if TYPE_CHECKING:
    import pandas as pd
    from airflow.sdk import BaseOperator


MAX_ROWS = 20
"""Maximum number of failed rows kept and shown per expectation."""

MAX_FINDINGS = 200
"""Maximum number of findings listed on the page."""

SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Content security policy of the page: allow inline styles and nothing else."""

_CATEGORICAL_COLUMNS = {"bundles": ["cluster", "broker", "policy"]}
"""Columns, by table, that become categorical, because Great Expectations hashes and copies every string."""

log = logging.getLogger(__name__)


def validation_page(run: StoragePath) -> StoragePath:
    return run / "validation" / "index.html"


def result_wording(result: Any) -> dict[str, str]:
    """Return the wording of Data Docs for an `ExpectationValidationResult`, by key: `expected` and `seen`.

    As a side effect, the lists of rows in the result are truncated.
    """
    from great_expectations.render.renderer.content_block import ValidationResultsTableContentBlockRenderer

    for key, entry in result.result.items():
        if isinstance(entry, list):
            result.result[key] = entry[:MAX_ROWS]
    _, expected, seen = ValidationResultsTableContentBlockRenderer.render([result]).to_json_dict()["table"][0]
    return {"expected": " ".join(_block_sentences(expected)), "seen": " ".join(_block_sentences(seen))}


def _block_sentences(block: Any) -> Iterator[str]:
    """Yield the sentences in a content block, without tables of rows or hints about queries for such rows."""
    if isinstance(block, list):
        for part in block:
            yield from _block_sentences(part)
    elif isinstance(block, dict):
        sentence = block.get("string_template")
        if sentence:
            values = {name: one_line(str(value), MAX_QUOTED) for name, value in sentence.get("params", {}).items()}
            yield Template(sentence["template"]).safe_substitute(values).strip()
    else:
        yield one_line(str(block), MAX_QUOTED)


def write_validation_page(
    run: StoragePath, request: RunRequest, validation: Validation, results: Mapping[str, Sequence[Result]]
) -> None:
    """Write the page. An error is only logged, because the page does not affect the validation."""
    try:
        validation_page(run).write_bytes(_page_html(run, request, validation, results).encode(errors="replace"))
    except Exception:
        log.warning("the page of the validation result could not be written", exc_info=True)


def _page_html(
    run: StoragePath, request: RunRequest, validation: Validation, results: Mapping[str, Sequence[Result]]
) -> str:
    # Imported here so that only the validating task loads it.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("pulsar_rebalancer_airflow")
    views = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return views.get_template("validation.html").render(
        policy=SECURITY_POLICY,
        run=run,
        request=request,
        explanation=explain_validation(validation),
        findings=[
            (f.effect, f.reason, one_line(f.subject, MAX_QUOTED), one_line(f.detail, MAX_QUOTED))
            for f in validation.findings[:MAX_FINDINGS]
        ],
        more_findings=max(0, len(validation.findings) - MAX_FINDINGS),
        tables={name: [_result_row(result) for result in rows] for name, rows in results.items()},
    )


def _result_row(result: Result) -> dict[str, bool | str | list[str]]:
    config = result["expectation_config"]
    rows = result["result"].get("unexpected_index_list") or []
    return {
        "met": result["success"],
        "column": config["kwargs"].get("column", "rows"),
        "reason": config["meta"]["reason"],
        "effect": config["meta"]["effect"],
        "notes": config["meta"].get("notes", ""),
        **result["wording"],
        "rows": [", ".join(f"{name}: {one_line(str(cell), MAX_QUOTED)}" for name, cell in row.items()) for row in rows],
    }


def validate(run: StoragePath, suites: Path | None = None) -> Validation:
    """Validate the sample of a run; write `validation.json` and, under `validation/`, results and a page.

    Findings with the same reason are sorted worst first. `suites` is a folder with `cluster.json`,
    `brokers.json` and `bundles.json`; None for the package's. Raises SnapshotError if a table is missing or
    damaged, or has another version.
    """
    snapshot = Snapshot(run)
    settings, tables = snapshot.settings, suite_tables(snapshot)
    findings: list[Finding] = []
    judged: dict[str, list[Result]] = {}
    for name, table in tables.items():
        try:
            frame = table.to_pandas(categories=_CATEGORICAL_COLUMNS.get(name))
            results = _run_suite(name, frame, suites or suites_folder(), suite_parameters(settings))
        except Exception as error:  # a table that cannot be judged must block the run
            log.exception("the expectation suite for table %s could not be run", name)
            findings.append(suite_failure(name, f"{type(error).__name__}: {error}"))
            continue
        findings += suite_findings(name, results)
        judged[name] = _json_value(results)
        (run / "validation" / f"{name}.json").write_json(judged[name])
    validation = make_validation(findings, tables, settings, _moves_state(run).unloads)
    validation.write(run)
    write_validation_page(run, snapshot.request, validation, judged)
    return validation


def _moves_state(run: StoragePath) -> MovesState:
    try:
        return StateBefore.read(run).moves
    except RebalancerError:
        return MovesState()  # the *decide* task needs the state and reports what is wrong with it


def _silence_loggers() -> None:
    names = {"great_expectations", *(name for name in logging.root.manager.loggerDict if "great_expectations" in name)}
    for name in names:
        logging.getLogger(name).setLevel(logging.WARNING)


def _run_suite(name: str, frame: pd.DataFrame, folder: Path, parameters: Mapping[str, float]) -> list[Result]:
    _silence_loggers()
    import great_expectations as gx

    _silence_loggers()  # again, because some of its loggers set their own level when created
    expectations = load_suite(folder, name)["expectations"]
    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = {"globally": False}
    batch = context.data_sources.add_pandas("run").add_dataframe_asset(name).add_batch_definition_whole_dataframe(name)

    def judge(expectations: list[Expectation], **result_format: Any) -> dict[int, Any]:
        outcome = batch.get_batch({"dataframe": frame}).validate(
            gx.ExpectationSuite(name=name, expectations=expectations),
            expectation_parameters=dict(parameters),
            result_format=result_format,
        )
        return {int(result.expectation_config.meta["position"]): result for result in outcome.results}

    judged = judge(expectations, result_format="BASIC")
    if len(judged) != len(expectations):
        raise ValueError(f"the suite has {len(expectations)} expectations but gave {len(judged)} results")
    # Listing rows takes half as long again as judging, and most samples meet all expectations.
    if missed := [expectations[position] for position, result in judged.items() if not result.success]:
        detail = {column for expectation in expectations for column in expectation["meta"].get("detail", ())}
        shown = [KEYS[name], *sorted(detail)]
        judged |= judge(missed, result_format="COMPLETE", unexpected_index_column_names=shown)
    return [judged[at].to_json_dict() | {"wording": _safe_wording(judged[at])} for at in sorted(judged)]


def _safe_wording(result: Any) -> dict[str, str]:
    """Return a result's texts for the page; empty if rendering fails, because the validation must not fail."""
    try:
        return result_wording(result)
    except Exception as error:
        log.warning("an expectation's result cannot be shown: %s", type(error).__name__)
        return {"expected": "", "seen": ""}


def _json_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json_value(entry[:MAX_ROWS] if _has_rows(key, entry) else entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_json_value(entry) for entry in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _has_rows(key: str, entry: Any) -> bool:
    return isinstance(entry, list) and "unexpected" in key


def page_address(dag_id: str, run_id: str, folder: str) -> str:
    """Return the URL of a page on the API server; only its path if `[api] base_url` is not set."""
    return _web_server_url() + page_path(dag_id, run_id, folder).removeprefix(urlsplit(_web_server_url()).path)


def page_path(dag_id: str, run_id: str, folder: str) -> str:
    dag, run, name = (quote(part, safe="") for part in (dag_id, run_id, folder))
    return f"{base_path()}{PREFIX}/dags/{dag}/runs/{run}/validation/{name}"


def base_path() -> str:
    return urlsplit(_web_server_url()).path


def _web_server_url() -> str:
    return str(conf.get("api", "base_url", fallback="") or "").rstrip("/")


class ValidationLink(BaseOperatorLink):
    """The link to a run's validation result. Airflow requests the link when the task ends, even if it failed."""

    name = "Validation result"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Return the path of the page; empty if the task wrote no page."""
        run = StoragePath(str(getattr(operator, "run", None) or ""))
        if not run.uri or not validation_page(run).exists():
            return ""
        return page_path(ti_key.dag_id, ti_key.run_id, run.name)


class ReplayLink(BaseOperatorLink):
    """The link to a replay's report. Airflow requests the link when the task ends."""

    name = "Replay report"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Return the path of the report; empty if the task wrote no report."""
        name = str(getattr(operator, "report_of", ""))
        return report_path(ti_key.dag_id, ti_key.run_id, name) if name else ""


def report_path(dag_id: str, run_id: str, name: str) -> str:
    dag, run, folder = (quote(part, safe="") for part in (dag_id, run_id, name))
    return f"{base_path()}{PREFIX}/dags/{dag}/runs/{run}/replay/{folder}"
