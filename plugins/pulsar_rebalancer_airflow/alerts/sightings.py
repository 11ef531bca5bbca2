"""Which conditions a run that ended shows, from its tasks and files."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pulsar_rebalancer.alerts import Condition, Seen
from pulsar_rebalancer.choices import Mode
from pulsar_rebalancer.reasons import Effect
from pulsar_rebalancer.resolution import Origin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_rebalancer.plan import Summary
    from pulsar_rebalancer.run import RunRequest, Validation
    from pulsar_rebalancer.settings import Settings
    from pulsar_rebalancer_airflow.outcome import Outcome

BEFORE_UNLOAD = ("collect", "validate", "decide", "record", "gate")
"""Tasks without which nothing can be moved."""

_LEFT_ALONE = frozenset(
    {"moved", "already_there", "owner_changed", "no_topic", "destination_gone", "bad_range", "not_found"}
)
"""Outcomes of moves that nobody has to look at: the next plan knows better."""

_OF_THE_PERSON = frozenset({"wrong_setting", "contradiction"})


@dataclass(frozen=True)
class Ended:
    """What is known of a run at its end; None: the run did not get that far, or the file cannot be read.

    Attributes:
        states: task id to the task's state.
        failures: task id to the reason code it failed with, as far as it had one.
        seconds: since the run started.
        manual: whether a person started it.
    """

    states: Mapping[str, str]
    failures: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None
    manual: bool = False
    request: RunRequest | None = None
    validation: Validation | None = None
    summary: Summary | None = None
    outcome: Outcome | None = None


def sightings_of(ended: Ended, settings: Settings) -> dict[Condition, Seen | None]:
    """Conditions that are there, None for those that are not; those that the run cannot tell are left out.

    Args:
        ended: the run.
        settings: of the clusters file.
    """
    found: dict[Condition, Seen | None] = {}
    if ended.validation is not None:
        found[Condition.BLOCKED] = _seen(ended.validation.reasons(Effect.BLOCK))
    _unsafe(ended, found)
    _unload(ended, found)
    _unfinished(ended, found)
    if ended.seconds is not None:
        detail = f"{ended.seconds:.0f} s, interval {settings.interval_seconds:g} s"
        slow = {"run_too_long": 1} if ended.seconds > settings.interval_seconds else {}
        found[Condition.SLOW] = _seen(slow, detail)
    return found


def _seen(reasons: Mapping[str, int], detail: str = "") -> Seen | None:
    return Seen(reasons, detail) if reasons else None


def _unsafe(ended: Ended, found: dict[Condition, Seen | None]) -> None:
    if ended.validation is None or ended.request is None:
        return
    if ended.request.resolved.settings.mode is Mode.AUTO:
        reasons = ended.validation.reasons(Effect.HOLD)
        if ended.outcome is not None and ended.outcome.verdict == "plan_changed":
            reasons = reasons | {"plan_changed": 1}
        found[Condition.UNSAFE] = _seen(reasons)
    elif not _lowered(ended.request):
        found[Condition.UNSAFE] = None


def _lowered(request: RunRequest) -> bool:
    """Whether this run alone may not act."""
    return request.resolved.origins.get("mode") is Origin.PARAMS


def _unload(ended: Ended, found: dict[Condition, Seen | None]) -> None:
    if ended.outcome is None or ended.request is None:
        return
    if ended.outcome.verdict == "observe" and not _lowered(ended.request):
        found[Condition.UNLOAD] = None
    if ended.outcome.verdict not in ("open", "nothing_to_do"):
        return
    reasons = {code: count for code, count in ended.outcome.counts.items() if code not in _LEFT_ALONE}
    # A mapped task is listed once for each wave, its number behind its name.
    failed = any(task.partition("_")[0] == "unload" and state == "failed" for task, state in ended.states.items())
    if failed and not reasons:
        reasons = {"task_failed": 1}
    verified = sum(move.ok for move in ended.outcome.moves)
    found[Condition.UNLOAD] = _seen(reasons, f"{verified} of {len(ended.outcome.moves)} moves verified")


def _unfinished(ended: Ended, found: dict[Condition, Seen | None]) -> None:
    blocked = found.get(Condition.BLOCKED) is not None
    failed = [
        task for task in BEFORE_UNLOAD if ended.states.get(task) == "failed" and not (task == "validate" and blocked)
    ]
    reasons = dict(Counter(ended.failures.get(task, "task_failed") for task in failed))
    if ended.manual and reasons and reasons.keys() <= _OF_THE_PERSON:
        return  # whoever typed the parameters reads the answer; the cluster is as well as before
    if failed:
        found[Condition.UNFINISHED] = Seen(reasons, f"task {', '.join(failed)}")
    elif ended.states.get("gate") == "success":
        found[Condition.UNFINISHED] = None


def figures_of(ended: Ended) -> list[str]:
    """The run in a few figures."""
    lines = []
    if ended.summary is not None:
        lines += _decided(ended.summary)
    if ended.outcome is not None and ended.outcome.moves:
        moves = ended.outcome.moves
        verified, astray = sum(move.ok for move in moves), sum(move.reason == "astray" for move in moves)
        lines.append(f"moves: {verified} of {len(moves)} verified, {astray} astray")
    if ended.validation is not None and ended.validation.findings:
        counts = Counter(finding.effect.value for finding in ended.validation.findings)
        lines.append("findings: " + ", ".join(f"{count} {effect}" for effect, count in sorted(counts.items())))
    return lines


def _decided(summary: Summary) -> list[str]:
    lines = []
    if summary.score_min is not None and summary.score_max is not None:
        span = f"{summary.score_min:.1f} to {summary.score_max:.1f} %"
        lines.append(f"score range: {summary.score_range:.1f} points ({span}) over {summary.brokers} brokers")
    settings = summary.resolved.settings
    low, high = summary.hits
    lines.append(f"hits: most low {low} of {settings.hit_count_low}, most high {high} of {settings.hit_count_high}")
    return lines
