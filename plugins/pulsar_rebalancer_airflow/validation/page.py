"""The validation result of a run as one page that is read offline: `<run>/validation/index.html`.

The content is that of Great Expectations' Data Docs, made by its own renderer. Its view needs style sheets, fonts and
scripts from six hosts, so the page is laid out by a template of this package: no script, nothing from elsewhere,
everything that came from brokers escaped.
"""

from __future__ import annotations

import logging
from string import Template
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.run.explanation import explain, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pulsar_rebalancer.run.request import RunRequest, Validation
    from pulsar_rebalancer.storage.path import StoragePath
    from pulsar_rebalancer_airflow.validation.findings import Result

log = logging.getLogger(__name__)

SHOWN_ROWS = 20
"""How many rows that missed are kept and shown for an expectation."""

SHOWN_FINDINGS = 200
"""How many findings the page lists one by one."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Content security policy of the page: it may be styled, and nothing else."""


def page_of(run: StoragePath) -> StoragePath:
    """Return the page's file."""
    return run / "validation" / "index.html"


def wording(result: Any) -> dict[str, str]:
    """Return what Data Docs say of one result (an `ExpectationValidationResult`): what was expected and what was seen.

    The lists of rows in the result are cut.
    """
    from great_expectations.render.renderer.content_block import ValidationResultsTableContentBlockRenderer

    for key, entry in result.result.items():
        if isinstance(entry, list):
            result.result[key] = entry[:SHOWN_ROWS]
    _, expected, seen = ValidationResultsTableContentBlockRenderer.render([result]).to_json_dict()["table"][0]
    return {"expected": " ".join(_texts(expected)), "seen": " ".join(_texts(seen))}


def _texts(block: Any) -> Iterator[str]:
    """Return the sentences of a content block; tables of rows and hints to query them are left out."""
    if isinstance(block, list):
        for part in block:
            yield from _texts(part)
    elif isinstance(block, dict):
        sentence = block.get("string_template")
        if sentence:
            values = {name: printable(str(value)) for name, value in sentence.get("params", {}).items()}
            yield Template(sentence["template"]).safe_substitute(values).strip()
    else:
        yield printable(str(block))


def write_page(
    run: StoragePath, request: RunRequest, validation: Validation, results: Mapping[str, Sequence[Result]]
) -> None:
    """Write the page. It is for people to read: whatever goes wrong is a warning, the verdict stands.

    Args:
        run: the run's folder.
        request: what was asked for.
        validation: what was found.
        results: by table, results in JSON's types with their `wording`.
    """
    try:
        page_of(run).write_bytes(_page(run, request, validation, results).encode(errors="replace"))
    except Exception:
        log.warning("the page of the validation result could not be written", exc_info=True)


def _page(
    run: StoragePath, request: RunRequest, validation: Validation, results: Mapping[str, Sequence[Result]]
) -> str:
    # Only the task that validates pays for loading it.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("pulsar_rebalancer_airflow")
    views = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return views.get_template("validation.html").render(
        policy=POLICY,
        run=run,
        request=request,
        explanation=explain(validation),
        findings=[
            (f.effect, f.reason, printable(f.subject), printable(f.detail))
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
        "rows": [", ".join(f"{name}: {printable(str(value))}" for name, value in row.items()) for row in rows],
    }
