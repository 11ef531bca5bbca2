"""The replay report: a single HTML page that loads no other files and escapes all names."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from datetime import UTC
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsar_rebalancer.replay.columns import Floats, Ints
from pulsar_rebalancer.replay.variant_outcome import RECORDING, Metrics, VariantOutcome, metrics_of
from pulsar_rebalancer.replay.variants import CURRENT_VARIANT, FailedVariant, ReplayRequest, ReplayResult, Variant
from pulsar_rebalancer.texts import number_of

if TYPE_CHECKING:
    import numpy.typing as npt
    from matplotlib.figure import Figure

    Times = npt.NDArray[np.datetime64]

SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
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
_RECORDED_COLOR = "#5f6368"
_MAX_POINTS = 400
_GAP_INTERVALS = 3
"""A chart's line has a gap where two points are further apart than this number of median intervals."""
_HEADERS = (
    *("bundles moved", "events", "unloads a day", "events a day", "disturbed a day, MiB/s"),
    *("mean range", "95th percentile of range", "largest range", "score std", "time above 80 %", "lost bundles"),
)
_MIB = 1 << 20


def report_html(
    request: ReplayRequest,
    result: ReplayResult,
    variants: Sequence[Variant],
    metrics_rows: Sequence[Metrics],
    outcomes: Mapping[str, VariantOutcome],
    failed_variants: Sequence[FailedVariant] = (),
) -> str:
    """Return the report as a page; `outcomes` are by variant, including the recording's."""
    ordered = sorted(metrics_rows, key=lambda variant: (variant.unloads_per_day, variant.range_mean))
    coverage = result.coverage
    recorded = metrics_of(outcomes[RECORDING], coverage.minutes)
    notes = [*coverage.notes, *coverage.unreadable, *(f"combination left out: {why}" for why in result.left_out)]
    more = result.left_out_count - len(result.left_out)
    notes += [f"{number_of(more, 'more combination')} left out"] if more else []
    parts = [
        f"<h1>What-if replay of cluster {escape(request.cluster)}</h1>",
        f"<p>Replayed: {escape(coverage.sentence)}. {number_of(result.variants, 'variant')} in {result.seconds:.0f} s"
        f"{', each day starting from the recorded owners of the bundles' if request.days_apart else ''}.</p>",
        f"<p>The current settings are {escape(request.settings_from)}.</p>",
        f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ul>" if notes else "",
        f"<p>If one point of range is worth {request.worth:g} unloads a day, the best variant is "
        f"<b>{escape(result.picked)}</b>.</p>",
        "<h2>Recording and replay</h2>",
        _agreement_section(result, recorded, outcomes[CURRENT_VARIANT]),
        _time_chart([outcomes[name] for name in dict.fromkeys((RECORDING, CURRENT_VARIANT, result.picked))]),
        "<h2>Unloads against range</h2>",
        "<p class=quiet>Each point is a variant, with the number that it has in the table. Further to the left, "
        "fewer bundles move; further down, scores are closer together. The line joins the "
        "variants that no other variant beats in both unloads and range.</p>",
        _scatter_chart(ordered, result, recorded),
        "<h2>Variants</h2>",
        _variants_table(ordered, result, {variant.name: variant for variant in variants}),
        _failed_variants_list(failed_variants),
        "<p class=quiet>Events: samples after which bundles move. Disturbed: throughput of the moved bundles just "
        "before their moves. Range: largest minus smallest broker score, in points; scores use the resource weights "
        "of the current settings. For the simplifications of a replay, see docs/replay.md.</p>",
    ]
    head = (
        '<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{SECURITY_POLICY}">'
        f"<title>Replay of {escape(request.cluster)}</title><style>{_STYLE}</style>"
    )
    return f"{head}<body><main>{''.join(parts)}</main></body></html>\n"


def _variants_table(ordered_rows: Sequence[Metrics], result: ReplayResult, variants: Mapping[str, Variant]) -> str:
    rows = []
    for number, row in enumerate(ordered_rows, start=1):
        kind = "current" if row.variant == CURRENT_VARIANT else "picked" if row.variant == result.picked else ""
        marks = {"current": row.variant == CURRENT_VARIANT, "picked": row.variant == result.picked}
        marks["on the front"] = row.variant in result.front
        names = (row.variant, variants[row.variant].settings.strategy)
        rows.append(
            f"<tr class={kind or 'other'}><td>{number}</td>"
            + "".join(f"<td class=name>{escape(name)}</td>" for name in names)
            + "".join(f"<td>{cell}</td>" for cell in _metric_cells(row))
            + f"<td class=name>{', '.join(name for name, holds in marks.items() if holds)}</td></tr>"
        )
    return _scrollable_table("Variants", ("number", "variant", "strategy", *_HEADERS, "remark"), "".join(rows))


def _scrollable_table(label: str, headers: Sequence[str], rows: str) -> str:
    """Return a table that can be scrolled within the page, including with the keyboard."""
    head = "".join(f"<th scope=col>{name}</th>" for name in headers)
    table = f"<table><tr>{head}</tr>{rows}</table>"
    return f'<div class=wide tabindex=0 role=group aria-label="{label}">{table}</div>'


def _failed_variants_list(failed_variants: Sequence[FailedVariant]) -> str:
    if not failed_variants:
        return ""
    rows = "".join(f"<li>{escape(failure.sentence)}</li>" for failure in failed_variants)
    return f"<p>Failed variants: {len(failed_variants)}. They have no metrics, and are never picked.</p><ul>{rows}</ul>"


def _metric_cells(row: Metrics) -> list[str]:
    return [
        f"{row.moved:,}",
        f"{row.events:,}",
        f"{row.unloads_per_day:.1f}",
        f"{row.events_per_day:.1f}",
        f"{row.disturbed_per_day / _MIB:,.1f}",
        *(f"{value:.1f}" for value in (row.range_mean, row.range_p95, row.range_largest, row.deviation_mean)),
        f"{row.hot_share:.1%}",
        str(row.lost),
    ]


def _agreement_section(answer: ReplayResult, recorded_row: Metrics, current_outcome: VariantOutcome) -> str:
    rows = {"as recorded": recorded_row}
    if answer.agreement is not None:
        rows["current settings, replayed"] = metrics_of(current_outcome, answer.coverage.minutes)
    lines = "".join(
        f"<tr><td class=name>{name}</td>{''.join(f'<td>{cell}</td>' for cell in _metric_cells(row))}</tr>"
        for name, row in rows.items()
    )
    result = f"{answer.agreement.sentence}." if answer.agreement else "The replay of the current settings failed."
    return (
        f"<p>{result}</p>{_scrollable_table('Recording and replay', ('values', *_HEADERS), lines)}"
        "<p class=quiet>In the recording, a bundle has moved if its broker differs from that of the previous sample. "
        "Lost: bundles whose broker was gone, had restarted or did not report. Recording and replay can agree only if "
        "the cluster was balanced with the current settings.</p>"
    )


def _scatter_chart(ordered_rows: Sequence[Metrics], result: ReplayResult, recorded_row: Metrics) -> str:
    figure, field = _figure_and_axes()
    field.set_xscale("symlog", linthresh=1)
    # The formatter of this scale writes mathematical markup, which is not parsed.
    field.xaxis.set_major_formatter("{x:,.10g}")
    front = [row for row in ordered_rows if row.variant in result.front]
    field.plot([row.unloads_per_day for row in front], [row.range_mean for row in front], color=_FRONT, linewidth=1)
    groups = {
        ("other variants", _PLAIN, 22): [row for row in ordered_rows if row.variant not in result.front],
        ("Pareto front", _FRONT, 22): front,
        (CURRENT_VARIANT, _CURRENT, 60): [row for row in ordered_rows if row.variant == CURRENT_VARIANT],
        ("picked", _PICKED, 60): [row for row in ordered_rows if row.variant == result.picked],
        ("as recorded", _RECORDED_COLOR, 60): [recorded_row],
    }
    for (label, colour, size), rows in groups.items():
        marker = "D" if rows == [recorded_row] else "o"
        places = [row.unloads_per_day for row in rows], [row.range_mean for row in rows]
        field.scatter(*places, color=colour, s=size, zorder=3, label=label, marker=marker)
    for number, row in enumerate(ordered_rows, start=1):
        field.annotate(str(number), (row.unloads_per_day, row.range_mean), fontsize=7, xytext=(3, 3),
                       textcoords="offset points")  # fmt: skip
    field.set_xlim(left=-0.1)
    field.set_xlabel("unloads a day")
    field.set_ylabel("mean range, points")
    figure.legend(loc="outside upper center", ncols=len(groups), fontsize=8)
    return svg(figure, "scatter", "Unloads a day and mean range of each variant, as in the table of variants.")


def _time_chart(outcomes: Sequence[VariantOutcome]) -> str:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    figure, (ranges, unloads) = _figure_and_axes(2, height_ratios=(3, 1))
    minutes = np.array(outcomes[0].sample_minutes)
    starts = np.arange(0, len(minutes), max(1, len(minutes) // _MAX_POINTS))
    kinds = {RECORDING: ("as recorded", _RECORDED_COLOR), CURRENT_VARIANT: (f"{CURRENT_VARIANT}, replayed", _CURRENT)}
    for outcome in (outcome for outcome in outcomes if outcome.failed is None and len(minutes)):
        label, colour = kinds.get(outcome.variant, ("picked", _PICKED))
        largest = np.maximum.reduceat(np.array(outcome.score_ranges), starts)
        ranges.plot(*_insert_gaps(minutes[starts], largest), color=colour, linewidth=1, label=label)
        if outcome.variant in kinds:
            at = np.array([minutes[0], *outcome.moved_at, minutes[-1]])
            so_far = np.minimum(np.arange(len(at)), len(at) - 2)
            unloads.step(_times_of(at), so_far, color=colour, linewidth=1, where="post", label=label)
    for field, title in ((ranges, "range, points"), (unloads, "unloads so far")):
        field.set_ylabel(title)
        field.set_ylim(bottom=-0.03 * field.get_ylim()[1])
    locator = AutoDateLocator(tz=UTC)
    unloads.xaxis.set_major_locator(locator)
    unloads.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))
    unloads.set_xlabel("time, UTC")
    figure.legend(*ranges.get_legend_handles_labels(), loc="outside upper center", ncols=len(outcomes), fontsize=8)
    return svg(figure, "time", "Score range and unloads over time, as recorded and replayed.")


def _insert_gaps(minutes: Ints, values: Floats) -> tuple[Times, Floats]:
    apart = np.diff(minutes)
    gaps = np.flatnonzero(apart > _GAP_INTERVALS * np.median(apart)) + 1 if len(apart) else apart
    return _times_of(np.insert(minutes, gaps, minutes[gaps])), np.insert(values, gaps, np.nan)


def _times_of(minutes: Ints) -> Times:
    return minutes.astype("datetime64[m]")


def _figure_and_axes(row_count: int = 1, **layout: Any) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3 + 1.5 * row_count), layout="constrained")
    return figure, figure.subplots(row_count, sharex=True, **layout)


def svg(figure: Figure, salt: str, label: str) -> str:
    """Return a figure as an SVG element; `salt` makes ids unique, screen readers read `label`."""
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt, "text.parse_math": False}):
        figure.savefig(buffer, format="svg")
    text = buffer.getvalue()
    element = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    element = re.sub(r' xmlns(:\w+)?="[^"]*"', "", element)
    return element.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)
