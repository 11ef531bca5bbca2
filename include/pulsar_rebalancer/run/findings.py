"""Findings of validation: their explanation, and the brokers and bundles that a run leaves out because of them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, JsonValue, computed_field

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.names import SYSTEM_NAMESPACE, match_mask, regex_of_glob
from pulsar_rebalancer.reasons import Effect, Reason, Trait, reasons_text
from pulsar_rebalancer.run.bundle_columns import namespaces_of
from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.texts import number_of, one_line

MAX_REASONS_LISTED = 10
"""Maximum number of reason codes listed."""

MAX_NAMED = 3
"""Maximum number of brokers or bundles named per reason."""

MAX_QUOTED = 160
"""Maximum number of characters quoted from text that came from the network."""


class ReasonWithMeaning(BaseModel):
    model_config = ConfigDict(frozen=True)

    reason: Reason

    @computed_field  # type: ignore[prop-decorator]
    @property
    def meaning(self) -> str:
        return self.reason.meaning


class ExplainedReason(ReasonWithMeaning):
    count: int
    worst: tuple[str, ...]
    action: str

    @computed_field  # type: ignore[prop-decorator]
    @property
    def effect(self) -> Effect:
        return self.reason.effect

    def text_line(self) -> str:
        shown = f" ({'; '.join(self.worst)})" if self.worst else ""
        return f"{self.effect}: {self.reason} x{self.count}{shown}: {self.meaning} {self.action}".rstrip()


@dataclass(frozen=True)
class ValidationExplanation:
    reasons: tuple[ExplainedReason, ...]
    more: int = 0

    def text(self) -> str:
        lines = [explained.text_line() for explained in self.reasons]
        return "\n".join([*lines, f"and {number_of(self.more, 'more reason')}"] if self.more else lines)

    def document(self) -> dict[str, JsonValue]:
        return {"reasons": [explained.model_dump(mode="json") for explained in self.reasons], "more": self.more}


def explain_validation(validation: Validation) -> ValidationExplanation:
    groups: dict[Reason, list[Finding]] = defaultdict(list)
    for finding in validation.findings:
        groups[finding.reason].append(finding)
    gravity = list(Effect)
    ordered = sorted(groups.items(), key=lambda item: (gravity.index(item[0].effect), -len(item[1])))
    explained = [_explained_reason(reason, findings) for reason, findings in ordered[:MAX_REASONS_LISTED]]
    return ValidationExplanation(tuple(explained), len(ordered) - len(explained))


def _explained_reason(reason: Reason, findings: Sequence[Finding]) -> ExplainedReason:
    worst = (_finding_text(finding) for finding in findings[:MAX_NAMED])
    causes = sorted({cause for f in findings if (cause := Reason.get(f.cause))})
    actions = [reason.action, *(f"{cause}: {cause.action}" for cause in causes if cause.action)]
    text = " ".join(actions).strip()
    return ExplainedReason(reason=reason, count=len(findings), worst=tuple(filter(None, worst)), action=text)


def _finding_text(finding: Finding) -> str:
    name, detail = one_line(finding.subject, MAX_QUOTED), one_line(finding.detail, MAX_QUOTED)
    return detail if name in detail else f"{name} {detail}".strip()


MIN_HOST_SAMPLES = 2
"""A broker's values count only after the broker has taken this number of host samples since its start."""


def drop_repeated_quarantines(findings: Iterable[Finding]) -> list[Finding]:
    kept: list[Finding] = []
    left_out: set[str] = set()
    for finding in findings:
        if finding.effect is Effect.QUARANTINE:
            if finding.subject in left_out:
                continue
            left_out.add(finding.subject)
        kept.append(finding)
    return kept


def unexpected_quarantines(findings: Iterable[Finding], moved_bundles: Collection[str]) -> frozenset[str]:
    """Return the brokers and bundles that validation leaves out for a reason other than a recent move.

    For one interval, two brokers might report a moved bundle, which is then left out.
    """
    return frozenset(
        f.subject
        for f in findings
        if f.effect is Effect.QUARANTINE and not (f.reason is Reason.TWO_OWNERS and f.subject in moved_bundles)
    )


# Left-out bundles load their broker, but are not moved: if they carry more than this share of its traffic, the others
# would have to make up for too much.
MAX_LEFT_OUT_SHARE = 0.25


def traffic_findings(shares: Mapping[str, float]) -> list[Finding]:
    """Return a finding for each broker with too much traffic in left-out bundles, the largest share first.

    `shares` is the share of a broker's traffic in those bundles, 0 to 1.
    """
    return [
        Finding(
            reason=Reason.TRAFFIC_IN_DOUBT,
            subject=broker,
            detail=f"left-out bundles carry {share:.0%} of the broker's traffic; limit: {MAX_LEFT_OUT_SHARE:.0%}",
        )
        for broker, share in sorted(shares.items(), key=lambda item: (-item[1], item[0]))
        if share > MAX_LEFT_OUT_SHARE
    ]


def unmatched_exclusions(
    brokers: Collection[str], bundles: pa.ChunkedArray[Any], settings: Settings
) -> Iterator[Finding]:
    for name in sorted(set(settings.excluded_brokers) - set(brokers)):
        yield Finding(reason=Reason.UNMATCHED_EXCLUSION, subject=name, detail="is not an active broker")
    for pattern in settings.excluded_bundles:
        if not pc.any(match_mask(regex_of_glob(pattern), bundles)).as_py():
            yield Finding(reason=Reason.UNMATCHED_EXCLUSION, detail=f"{pattern!r} matches no bundle")


def spread_findings(bundles: pa.Table, brokers: int, left_out: Collection[str]) -> Iterator[Finding]:
    """Yield namespaces with too few bundles for the brokers, the busiest first, and crowded system bundles."""
    ways: list[Any] = [pc.coalesce(bundles[f"msg_throughput_{way}"], pa.scalar(0.0)) for way in ("in", "out")]
    sound = pc.invert(pc.is_in(bundles["bundle"], pa.array(list(left_out), pa.string())))
    table = bundles.select(["bundle", "broker", "topics"]).append_column(
        "traffic", pc.if_else(sound, pc.add(*ways), 0.0)
    )
    table = table.append_column("namespace", namespaces_of(table["bundle"]))
    sums = table.group_by("namespace", use_threads=False).aggregate(
        [("topics", "sum"), ("traffic", "sum"), ([], "count_all")]
    )
    whole = math.fsum(value or 0.0 for value in sums["traffic_sum"].to_pylist())
    few = [
        row
        for row in sums.sort_by([("traffic_sum", "descending"), ("namespace", "ascending")]).to_pylist()
        # A bundle is too large with more than half of a broker's fair share; a split needs more topics than bundles.
        if row["count_all"] < min(brokers, row["topics_sum"] or 0)
        and 2 * row["traffic_sum"] * brokers > whole * row["count_all"]
    ]
    theirs = table.filter(pc.field("namespace").isin(pa.array([row["namespace"] for row in few], pa.string())))
    by_traffic = theirs.sort_by([("traffic", "ascending"), ("bundle", "descending")]).to_pylist()
    largest = {row["namespace"]: row["bundle"] for row in by_traffic}
    for row in few:
        traffic, bundle = f"{row['traffic_sum'] / whole:.0%} of the traffic", largest[row["namespace"]]
        detail = f"{number_of(row['count_all'], 'bundle')} for {brokers} brokers, {traffic}; busiest bundle: {bundle}"
        yield Finding(reason=Reason.FEW_BUNDLES, subject=row["namespace"], detail=detail)
    system = table.filter(pc.field("namespace") == SYSTEM_NAMESPACE).to_pylist()
    broker, held = next(iter(Counter(row["broker"] for row in system).most_common(1)), ("", 0))
    if exceeds_twice_fair_share(held, len(system), brokers):
        bundle = min(row["bundle"] for row in system if row["broker"] == broker)
        detail = f"{broker} has {held} of {len(system)} bundles of {SYSTEM_NAMESPACE}, such as {bundle}"
        yield Finding(reason=Reason.NOT_RECOMMENDED, subject=broker, detail=detail)


def exceeds_twice_fair_share(owned_count: int, total_count: int, broker_count: int) -> bool:
    return owned_count > 2 * math.ceil(total_count / max(broker_count, 1))  # more than twice a fair share


def blocking_findings(findings: Iterable[Finding], samples: Mapping[str, float], settings: Settings) -> list[Finding]:
    """Return findings that block the run if too many brokers are quarantined or too few remain.

    `samples` counts each listed broker's host samples since it started.
    """
    quarantined = {f.subject: f.reason for f in findings if f.effect is Effect.QUARANTINE}
    left_out: dict[Reason, list[str]] = defaultdict(list)
    for broker in samples:
        if broker in settings.excluded_brokers:
            left_out[Reason.BROKER_EXCLUDED].append(broker)
        elif broker in quarantined:
            left_out[quarantined[broker]].append(broker)
    judged = len(samples) - sum(map(len, left_out.values()))
    started = [samples[broker] for broker in left_out[Reason.JUST_STARTED]]
    why = _left_out_text(left_out, started, settings)

    blocking = []
    total = sum(len(brokers) for reason, brokers in left_out.items() if _counts_as_quarantined(reason))
    if total > settings.max_quarantined_brokers:
        detail = f"{number_of(total, 'broker')} quarantined, limit {settings.max_quarantined_brokers}{why}"
        blocking.append(Finding(reason=Reason.TOO_MANY_QUARANTINED, detail=detail))
    if judged < 2:
        blocking.append(Finding(reason=Reason.TOO_FEW_BROKERS, detail=f"{judged} of {len(samples)} usable{why}"))
    return blocking


def _counts_as_quarantined(reason: Reason) -> bool:
    return reason.effect is Effect.QUARANTINE and not reason.has(Trait.EXPECTED)


def _left_out_text(left_out: Mapping[Reason, list[str]], started: Iterable[float], settings: Settings) -> str:
    missing = max((MIN_HOST_SAMPLES - max(samples, 0) for samples in started), default=0)
    minutes = math.ceil(missing * settings.host_usage_interval_minutes)
    passes = f"; just-started brokers join after {minutes} min" if left_out.get(Reason.JUST_STARTED) else ""
    named = reasons_text({reason: len(brokers) for reason, brokers in left_out.items() if brokers})
    return f"; left out: {named}{passes}" if named else ""
