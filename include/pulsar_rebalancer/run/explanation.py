"""Explain validation findings to people: the count, the worst cases and the remedy for each reason."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import JsonValue

    from pulsar_rebalancer.run.request import Finding, Validation

LISTED = 10
"""Maximum number of reason codes listed."""

WORST = 3
"""Maximum number of brokers or bundles named per reason."""

QUOTED = 160
"""Maximum number of characters quoted from text that came from the network."""


@dataclass(frozen=True)
class ExplainedReason:
    """A reason code in a run's validation findings, with its cases.

    Attributes:
        count: number of brokers, bundles or facts with this reason.
        worst: the worst cases, with their figures.
        action: what to do about the reason and its causes.
    """

    reason: Reason
    count: int
    worst: tuple[str, ...]
    action: str

    @property
    def effect(self) -> Effect:
        """Return the effect of the reason on the run."""
        return self.reason.effect

    @property
    def meaning(self) -> str:
        """Return the reason's meaning, a description of what was observed."""
        return self.reason.meaning

    def line(self) -> str:
        """Return the explanation of the reason as one line of text."""
        shown = f" ({'; '.join(self.worst)})" if self.worst else ""
        return f"{self.effect}: {self.reason} x{self.count}{shown}: {self.meaning} {self.action}".rstrip()


@dataclass(frozen=True)
class Explanation:
    """At most ten of a run's reasons, sorted by the severity of their effect, then by count.

    Attributes:
        more: number of further reasons, which are not listed.
    """

    reasons: tuple[ExplainedReason, ...]
    more: int = 0

    def text(self) -> str:
        """Return the explanation as text, with one line for each reason."""
        lines = [explained.line() for explained in self.reasons]
        return "\n".join([*lines, f"and {self.more} more reasons"] if self.more else lines)

    def document(self) -> dict[str, JsonValue]:
        """Return the explanation as JSON values."""
        reasons: list[JsonValue] = [
            asdict(explained)
            | {"effect": explained.effect.value, "meaning": explained.meaning, "worst": list(explained.worst)}
            for explained in self.reasons
        ]
        return {"reasons": reasons, "more": self.more}


def explain(validation: Validation) -> Explanation:
    """Explain validation findings, which must be sorted: the worst finding for each reason comes first."""
    groups: dict[Reason, list[Finding]] = defaultdict(list)
    for finding in validation.findings:
        groups[finding.reason].append(finding)
    gravity = list(Effect)
    ordered = sorted(groups.items(), key=lambda item: (gravity.index(item[0].effect), -len(item[1])))
    explained = [_explained(reason, findings) for reason, findings in ordered[:LISTED]]
    return Explanation(tuple(explained), len(ordered) - len(explained))


def _explained(reason: Reason, findings: Sequence[Finding]) -> ExplainedReason:
    worst = (_shown(finding) for finding in findings[:WORST])
    causes = sorted({cause for f in findings if (cause := Reason.get(f.cause))})
    actions = [reason.action, *(f"{cause}: {cause.action}" for cause in causes if cause.action)]
    return ExplainedReason(reason, len(findings), tuple(filter(None, worst)), " ".join(actions).strip())


def _shown(finding: Finding) -> str:
    name, detail = one_line(finding.subject, QUOTED), one_line(finding.detail, QUOTED)
    return detail if name in detail else f"{name} {detail}".strip()
