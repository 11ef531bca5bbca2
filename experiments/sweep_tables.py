"""Where verdicts flip, as Markdown for docs/experiments.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from experiments.problems import DECISIVE, PROBLEMS
from experiments.tables import MEASURES, Table, alike, also, short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from experiments.assumption import Assumption
    from experiments.sweep_results import Sweep


class Swept(NamedTuple):
    """An assumption and what its values gave."""

    assumption: Assumption
    sweep: Sweep


def markdown(sweeps: Mapping[str, Sweep], assumptions: Mapping[str, Assumption]) -> str:
    """Return which verdicts depend on an assumption, and a section for each assumption."""
    swept = [Swept(assumptions[name], sweeps[name]) for name in assumptions if name in sweeps]
    if not swept:
        return "Not swept yet."
    parts = [of_all(swept).markdown()]
    for assumption, sweep in swept:
        parts += [f"### {assumption.title}", f"{assumption.about} {_where(assumption)}", *of_assumption(sweep)]
        for name, measure in assumption.figures.items():
            parts += [
                f"{MEASURES[measure].title.capitalize()} in `{name}`, the median:",
                _figures(sweep, name).markdown(),
            ]
    return "\n\n".join([*parts, _origin([sweep for _, sweep in swept], len(assumptions))])


def of_all(swept: list[Swept]) -> Table:
    """Return for each variant and problem the verdict by default, and the values at which it is another one."""
    variants = dict.fromkeys(variant for _, sweep in swept for variant in sweep.outcomes)
    cells = {variant: tuple(_flips(swept, variant, problem.title) for problem in PROBLEMS) for variant in variants}
    rows = [[also(map(short, same)), *cells[same[0]]] for same in alike(cells)]
    return Table(["", *(problem.title for problem in PROBLEMS)], rows)


def of_assumption(sweep: Sweep) -> list[str]:
    """Return a table of the verdicts that depend on the assumption, and how many do not."""
    problems = {title for outcomes in sweep.outcomes.values() for title in outcomes}
    rows, steady = [], 0
    for title in (problem.title for problem in PROBLEMS if problem.title in problems):
        cells = {variant: outcomes[title] for variant, outcomes in sweep.outcomes.items()}
        for same in alike(cells):
            flips = sweep.flips(same[0], title)
            if flips:
                texts = zip(sweep.values, cells[same[0]], strict=True)
                row = [_bold(f"{outcome.verdict}", value in flips) + f"<br>{outcome.text}" for value, outcome in texts]
                rows.append([title, also(map(short, same)), *row])
            else:
                steady += len(same)
    head = ["problem", "", *(f"{value} (default)" if value == sweep.default else value for value in sweep.values)]
    table = [Table(head, rows).markdown()] if rows else []
    return [*table, f"{steady} of {len(sweep.outcomes) * len(problems)} verdicts are the same at every value."]


def _flips(swept: list[Swept], variant: str, problem: str) -> str:
    concerned = [each for each in swept if problem in each.sweep.outcomes.get(variant, {})]
    if not concerned:
        return "not swept"
    lines = [concerned[0].sweep.usual(variant, problem)]
    for assumption, sweep in concerned:
        at: dict[str, list[str]] = {}
        for value, verdict in sweep.flips(variant, problem).items():
            at.setdefault(verdict, []).append(value)
        lines += [f"**{verdict}**: {assumption.title.lower()} {', '.join(values)}" for verdict, values in at.items()]
    return "<br>".join(lines)


def _where(assumption: Assumption) -> str:
    names = "the scenarios that decide verdicts"
    if assumption.scenarios != DECISIVE:
        names = ", ".join(f"`{name}`" for name in assumption.scenarios)
    return f"Swept in {names}."


def _figures(sweep: Sweep, scenario: str) -> Table:
    rows = [
        [
            also(map(short, same)),
            *("never" if figure is None else f"{figure:.3g}" for figure in sweep.figures[scenario][same[0]]),
        ]
        for same in alike(sweep.figures[scenario])
    ]
    return Table(["", *sweep.values], rows)


def _origin(sweeps: list[Sweep], assumptions: int) -> str:
    commits = ", ".join(f"`{commit}`" for commit in dict.fromkeys(sweep.commit for sweep in sweeps))
    seeds = ", ".join(dict.fromkeys(str(len(sweep.seeds)) for sweep in sweeps))
    said = f"Drawn from the results in `experiments/results/sweeps`, of {commits}, {seeds} seeds"
    return f"{said}: {len(sweeps)} of {assumptions} assumptions."


def _bold(text: str, flips: bool) -> str:
    return f"**{text}**" if flips else text
