"""The report of a replay: one HTML page that loads nothing and escapes all names."""

from __future__ import annotations

import io
import re
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from pulsar_rebalancer.replay.variants import CURRENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pulsar_rebalancer.replay.replay_request import FailedVariant, ReplayRequest, ReplayResult
    from pulsar_rebalancer.replay.variant_outcome import Figures, VariantOutcome
    from pulsar_rebalancer.replay.variants import Variant

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Content security policy of the page: only inline styles are allowed."""

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; font-size: 13px; }
th, td { border-bottom: 1px solid #cfd6dd; padding: .25rem .5rem; }
td { text-align: right; } td.name { text-align: left; overflow-wrap: anywhere; } th { background: #f2f5f7; }
tr.current { background: #e8f0fe; } tr.picked { background: #e6f4ea; }
.wide { overflow-x: auto; } .quiet { color: #57606a; } svg { max-width: 100%; height: auto; }
"""
_PLAIN, _FRONT, _CURRENT, _PICKED = "#9aa5b1", "#0b4f8a", "#1a73e8", "#188038"
_POINTS = 400
_HEADS = (
    *("", "variant", "strategy", "bundles moved", "events", "unloads a day", "events a day", "disturbed a day, MiB/s"),
    *("range, mean", "95 % of the time below", "largest", "std", "above 80 %", "lost a broker", ""),
)
_MIB = 1 << 20


def html(
    request: ReplayRequest,
    answer: ReplayResult,
    variants: Sequence[Variant],
    compared: Sequence[Figures],
    outcomes: Mapping[str, VariantOutcome],
    failed: Sequence[FailedVariant] = (),
) -> str:
    """Return the report as an HTML page.

    Args:
        compared: the figures of all variants that did not fail.
        outcomes: by name of the variant.
    """
    ordered = sorted(compared, key=lambda variant: (variant.unloads_per_day, variant.range_mean))
    coverage = answer.coverage
    notes = [*coverage.notes, *coverage.unreadable, *(f"left out: {why}" for why in answer.left_out)]
    more = answer.left_out_count - len(answer.left_out)
    notes += [f"left out: {more} more"] if more else []
    parts = [
        f"<h1>What-if replay of cluster {escape(request.cluster)}</h1>",
        f"<p>Replayed: {escape(coverage.sentence)}. {answer.variants} variants in {answer.seconds:.0f} s"
        f"{', each day starting from the recorded places of bundles' if request.days_apart else ''}.</p>",
        f"<p>The current settings are {escape(request.settings_from)}.</p>",
        f"<p>In this recording, {escape(coverage.made)}.</p>" if coverage.made else "",
        f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ul>" if notes else "",
        f"<p>With one point of range worth {request.worth:g} unloads a day, the choice is "
        f"<b>{escape(answer.picked)}</b>.</p>",
        "<h2>Unloads against range</h2>",
        "<p class=quiet>Each point is a variant, numbered as in the table: further left, fewer bundles move; further "
        "down, brokers are more equal. The line joins the variants that no other variant beats in both.</p>",
        _scatter(ordered, answer),
        "<h2>Variants</h2>",
        _table(ordered, answer, {variant.name: variant for variant in variants}),
        _failed(failed),
        "<h2>Range over time</h2>",
        _over_time([outcomes[name] for name in dict.fromkeys((CURRENT, answer.picked)) if not outcomes[name].failed]),
        "<p class=quiet>Range: largest minus smallest score of the brokers, points. Scores use the resource weights of "
        "the current settings. Disturbed: total throughput of the bundles when they moved. Simplifications: see "
        "docs/replay.md.</p>",
    ]
    head = (
        f'<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv="Content-Security-Policy" '
        f'content="{POLICY}"><title>Replay of {escape(request.cluster)}</title><style>{_STYLE}</style>'
    )
    return f"{head}<body>{''.join(parts)}</body></html>\n"


def _table(ordered: Sequence[Figures], answer: ReplayResult, variants: Mapping[str, Variant]) -> str:
    rows = []
    for number, row in enumerate(ordered, start=1):
        kind = "current" if row.variant == CURRENT else "picked" if row.variant == answer.picked else ""
        marks = {"current": row.variant == CURRENT, "picked": row.variant == answer.picked}
        marks["on the front"] = row.variant in answer.front
        cells = [
            f"{row.moved:,}",
            f"{row.events:,}",
            f"{row.unloads_per_day:.1f}",
            f"{row.events_per_day:.1f}",
            f"{row.disturbed_per_day / _MIB:,.1f}",
            *(f"{value:.1f}" for value in (row.range_mean, row.range_p95, row.range_largest, row.deviation_mean)),
            f"{row.hot_share:.1%}",
            str(row.lost),
        ]
        names = (row.variant, variants[row.variant].settings.strategy)
        rows.append(
            f"<tr class={kind or 'other'}><td>{number}</td>"
            + "".join(f"<td class=name>{escape(name)}</td>" for name in names)
            + "".join(f"<td>{cell}</td>" for cell in cells)
            + f"<td class=name>{', '.join(name for name, holds in marks.items() if holds)}</td></tr>"
        )
    heads = "".join(f"<th>{name}</th>" for name in _HEADS)
    return f"<div class=wide><table><tr>{heads}</tr>{''.join(rows)}</table></div>"


def _failed(failed: Sequence[FailedVariant]) -> str:
    if not failed:
        return ""
    rows = "".join(f"<li>{escape(failure.sentence)}</li>" for failure in failed)
    return f"<p>Failed variants: {len(failed)}. They have no figures, and are never picked.</p><ul>{rows}</ul>"


def _scatter(ordered: Sequence[Figures], answer: ReplayResult) -> str:
    figure, field = _field()
    front = [row for row in ordered if row.variant in answer.front]
    field.plot([row.unloads_per_day for row in front], [row.range_mean for row in front], color=_FRONT, linewidth=1)
    for number, row in enumerate(ordered, start=1):
        colour = _FRONT if row.variant in answer.front else _PLAIN
        colour = {answer.picked: _PICKED, CURRENT: _CURRENT}.get(row.variant, colour)
        marked = row.variant in (CURRENT, answer.picked)
        field.scatter([row.unloads_per_day], [row.range_mean], color=colour, s=60 if marked else 22, zorder=3)
        field.annotate(str(number), (row.unloads_per_day, row.range_mean), fontsize=7, xytext=(3, 3),
                       textcoords="offset points")  # fmt: skip
    field.set_xscale("symlog", linthresh=1)
    field.set_xlim(left=-0.1)
    field.set_xlabel("unloads a day")
    field.set_ylabel("mean range, points")
    return svg(figure, "scatter")


def _over_time(outcomes: Sequence[VariantOutcome]) -> str:
    figure, field = _field()
    for outcome, colour in zip(outcomes, (_CURRENT, _PICKED), strict=False):
        ranges = np.array(outcome.ranges or [0.0])
        starts = np.arange(0, len(ranges), max(1, len(ranges) // _POINTS))
        label = "current settings" if outcome.variant == CURRENT else "picked"
        field.plot(starts, np.maximum.reduceat(ranges, starts), color=colour, linewidth=1, label=label)
    field.legend(loc="upper right", fontsize=8)
    field.set_xlabel("samples")
    field.set_ylabel("range, points")
    return svg(figure, "time")


def _field() -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    return figure, figure.subplots()


def svg(figure: Figure, salt: str) -> str:
    """Return a figure as an SVG element without the preamble, metadata and namespaces that HTML does not need.

    Args:
        salt: makes the ids unique on a page and the same each time.
    """
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt, "text.parse_math": False}):
        figure.savefig(buffer, format="svg")
    text = buffer.getvalue()
    element = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    return re.sub(r' xmlns(:\w+)?="[^"]*"', "", element)
