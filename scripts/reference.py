"""Write what is made from the code: tables of docs/, and the types of the documents that the page reads."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from textwrap import wrap
from typing import Any

from pydantic.json_schema import models_json_schema

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide.stays import RULES
from pulsar_rebalancer.orders.in_force import ACTIONS
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.show.page.page_model import FoundBundles, Overview, RunAnswer, Status, StayView
from pulsar_rebalancer.show.page.timeline import Timeline
from pulsar_rebalancer_airflow.provider import OPTIONS
from pulsar_simulator.__main__ import _parser
from pulsar_simulator.faults import FAULT_INFOS

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
    ROOT / "docs" / "simulation.md",
    ROOT / "docs" / "runs.md",
    ROOT / "docs" / "control.md",
)
PAGE_TYPES = ROOT / "plugins" / "pulsar_rebalancer_airflow" / "overview" / "static" / "documents.d.ts"


def settings_table() -> str:
    """Return a row per setting: our name and Pulsar's, default, meaning."""
    rows = ["| setting | default | meaning |", "| --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        default = ", ".join(default) if isinstance(default, tuple) else default
        shown = "none" if default in (None, "") else f"{default:g}" if isinstance(default, float) else str(default)
        names = f"`{name}`" + (f"<br>`{field.alias}`" if field.alias else "")
        rows.append(f"| {names} | {shown} | {field.description} |")
    return "\n".join(rows)


def reasons_list() -> str:
    """Return a paragraph with an anchor per reason code, grouped by what it does to the run."""
    return "\n\n".join(
        f"## {effect}\n\n"
        + "\n\n".join(f'<a id="{r}"></a>`{r}`: {r.meaning} {r.action}'.rstrip() for r in Reason if r.effect is effect)
        for effect in Effect
    )


def stays_table() -> str:
    """Return a row per rule by which a bundle stays, in the order in which they apply."""
    rows = ["| | reason code | meaning | may be overruled |", "| --- | --- | --- | --- |"]
    for number, rule in enumerate(RULES, 1):
        overruled = f"`{rule.lifted_by}`" if rule.lifted_by else "no"
        rows.append(f"| {number} | `{rule.reason}` | {rule.reason.meaning} | {overruled} |")
    return "\n".join(rows)


def orders_table() -> str:
    """Return a row per action of the control DAG's form."""
    rows = ["| action | needs | what it does |", "| --- | --- | --- |"]
    for action in ACTIONS.values():
        needs = {"subject": bool(action.subject), "until": action.until, "reason": action.needs_reason}
        needed = ", ".join(f"`{name}`" for name, is_needed in needs.items() if is_needed)
        subject = f"`subject`: {action.subject}." if action.subject else ""
        does = " ".join(filter(None, (f"{action.title}.", action.hint, subject)))
        rows.append(f"| `{action.name}` | {needed} | {does} |")
    return "\n".join(rows)


def bad_input_table() -> str:
    """Return a row per kind of bad input: those that tests/integration/test_bad_input.py takes through the DAG."""
    spec = spec_from_file_location("bad_input", ROOT / "tests" / "bad_input.py")
    if spec is None or spec.loader is None:
        raise ImportError("tests/bad_input.py cannot be loaded")
    sys.modules[spec.name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.table())


def options_table() -> str:
    """Return a row per option of `python -m pulsar_simulator`."""
    rows = ["| option | meaning (default) |", "| --- | --- |"]
    for option in _parser()._actions:
        if option.dest != "help":
            value = option.metavar or "\\|".join(option.choices or [option.dest.upper()])
            shown = option.option_strings[-1] + (f" {value}" if option.nargs is None else "")
            rows.append(f"| `{shown}` | {option.help}{'; required' if option.required else ''} |")
    return "\n".join(rows)


def faults_table() -> str:
    """Return a row per kind of fault of the simulated cluster, those for the same requests together."""
    rows = ["| kind | what happens (default `amount`) |", "| --- | --- |"]
    for paths in dict.fromkeys(info.paths for info in FAULT_INFOS.values()):
        if paths:
            rows.append(f"| only for | {', '.join(f'`{path}`' for path in paths)}: |")
        for kind, info in FAULT_INFOS.items():
            if info.paths == paths:
                amount = f" ({info.amount:,.10g})" if info.amount else ""
                rows.append(f"| `{kind}` | {info.meaning}{amount} |")
    return "\n".join(rows)


def page_types() -> str:
    """Return the TypeScript types of the documents that the page reads."""
    documents = [(model, "serialization") for model in (Overview, Status, Timeline, RunAnswer, StayView, FoundBundles)]
    _, schema = models_json_schema(documents)  # type: ignore[arg-type]
    lines = ["// The documents that the page reads; written by scripts/reference.py."]
    for name, definition in sorted(schema["$defs"].items()):
        if name == "Reason":
            lines += ["export type Reason = string;"]
        elif "enum" in definition:
            values = " | ".join(f'"{value}"' for value in definition["enum"])
            lines += wrap(f"export type {name} = {values};", 120, subsequent_indent="  ")
        else:
            fields = " ".join(
                f"{field}:\0{_type(of)};".replace(" ", "\0") for field, of in definition["properties"].items()
            )
            drawn = wrap(f"export interface {name} {{ {fields} }}", 120, subsequent_indent="  ", break_long_words=False)
            lines += [line.replace("\0", " ") for line in drawn]
    return "\n".join([*lines, ""])


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(_type(each) for each in schema["anyOf"])
    if schema["type"] == "array":
        return f"{_type(schema['items'])}[]"
    if schema["type"] == "object":
        return f"Record<string, {_type(schema['additionalProperties'])}>"
    return str(schema["type"]).replace("integer", "number")


def airflow_options_table() -> str:
    """Return a row per option of the package in Airflow's configuration."""
    rows = ["| option | default | meaning |", "| --- | --- | --- |"]
    for name, option in OPTIONS.items():
        default = f"`{option['default'].replace('{AIRFLOW_HOME}', '$AIRFLOW_HOME')}`" if option["default"] else "none"
        example = f" Example: `{option['example']}`" if option["example"] else ""
        rows.append(f"| `{name}` | {default} | {option['description'].strip()}{example} |")
    return "\n".join(rows)


TABLES = {
    "options of airflow": airflow_options_table,
    "settings": settings_table,
    "reasons": reasons_list,
    "stays": stays_table,
    "orders": orders_table,
    "bad input": bad_input_table,
    "options": options_table,
    "faults": faults_table,
}
"""By the name in the markers around them."""


def render(text: str) -> str:
    """Return the text with its tables renewed between their markers."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        if begin in text:
            before, _, rest = text.partition(begin)
            if end not in rest:
                sys.exit(f"the table {name} has no end: {end} is missing; nothing was written")
            text = f"{before}{begin}{table()}\n{end}{rest.partition(end)[2]}"
    return text


def written() -> dict[Path, str]:
    """Return every file that is made from the code, with its text."""
    return {page: render(page.read_text(encoding="utf-8")) for page in PAGES} | {PAGE_TYPES: page_types()}


if __name__ == "__main__":
    for file, text in written().items():
        if "--check" in sys.argv[1:] and file.read_text(encoding="utf-8") != text:
            sys.exit(f"{file.name} is not that of the code; run python scripts/reference.py")
        file.write_text(text, encoding="utf-8")
