"""The page of a run's validation result."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from string import Template
from typing import Any

from pulsar_rebalancer.decide.validation import Result
from pulsar_rebalancer.run.findings import QUOTED, explain
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.texts import one_line

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
