"""Writes the tables of settings and reason codes into README.md, from the code that defines them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pulsar_rebalancer.reasons import REASONS, Effect
from pulsar_rebalancer.settings import Settings

README = Path(__file__).resolve().parents[1] / "README.md"


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


def render(text: str) -> str:
    """The text with its tables renewed between their markers."""
    for name, content in (("settings", settings_table()), ("reasons", reasons_table())):
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text = pattern.sub(lambda found, content=content: found[1] + content + "\n" + found[2], text)
    return text


if __name__ == "__main__":
    old = README.read_text(encoding="utf-8")
    new = render(old)
    if "--check" in sys.argv[1:] and new != old:
        sys.exit("README.md: its tables are not those of the code; run python scripts/reference.py")
    README.write_text(new, encoding="utf-8")
