"""Writes the tables of README.md: settings and reason codes from the code, bad input from the data of its test."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from pulsar_rebalancer.reasons import REASONS, Effect
from pulsar_rebalancer.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"


def settings_table() -> str:
    """A row per setting: our name, Pulsar's name, default, meaning."""
    rows = ["| setting | Pulsar's name | default | meaning |", "| --- | --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        shown = "none" if default in (None, "", ()) else f"{default:g}" if isinstance(default, float) else str(default)
        rows.append(f"| `{name}` | {f'`{field.alias}`' if field.alias else ''} | {shown} | {field.description} |")
    return "\n".join(rows)


def reasons_table() -> str:
    """A row per reason code, grouped by what it does to the run."""
    rows = ["| reason code | effect | meaning | what to do |", "| --- | --- | --- | --- |"]
    for effect in Effect:
        rows += [
            f"| `{r.code}` | {effect} | {r.meaning} | {r.action or 'nothing'} |"
            for r in REASONS.values()
            if r.effect is effect
        ]
    return "\n".join(rows)


def bad_input_table() -> str:
    """A row per kind of bad input: those that tests/integration/test_bad_input.py takes through the DAG."""
    spec = spec_from_file_location("bad_input", ROOT / "tests" / "bad_input.py")
    if spec is None or spec.loader is None:
        raise ImportError("tests/bad_input.py cannot be loaded")
    sys.modules[spec.name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.table())


def render(text: str) -> str:
    """The text with its tables renewed between their markers."""
    tables = {"settings": settings_table(), "reasons": reasons_table(), "bad input": bad_input_table()}
    for name, content in tables.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text = pattern.sub(lambda found, content=content: found[1] + content + "\n" + found[2], text)
    return text


if __name__ == "__main__":
    old = README.read_text(encoding="utf-8")
    new = render(old)
    if "--check" in sys.argv[1:] and new != old:
        sys.exit("README.md: its tables are not those of the code; run python scripts/reference.py")
    README.write_text(new, encoding="utf-8")
