"""A run's request and the findings of its validation: two documents in the run's folder."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, computed_field, model_validator

from pulsar_rebalancer.config.resolution import Resolved, RunParams
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.storage.documents import VersionedDocument


class RunRequest(VersionedDocument):
    """`input/settings.json`: a run's request, with its effective settings.

    Attributes:
        cluster: the cluster's name in the clusters file.
        airflow_run_id: id of the DAG run. It is never part of a path, because ids can contain `:` and text from users.
        requested_by: the person who started a manual run; empty for scheduled runs.
        collected_at: the time of the sample; ages and counting are relative to it.
        dry_run: True if the run only shows a manual plan. Such a run carries out nothing and has no outcome.
        closed: why nothing may be moved, if this is known before the decision; None if moves are allowed.
        in_force: a sentence about the orders in force when the sample was taken (such as a drain), and who gave them.
    """

    FILE: ClassVar[str] = "input/settings.json"

    cluster: str
    airflow_run_id: str
    requested_by: str = ""
    params: RunParams = RunParams()
    resolved: Resolved
    collected_at: AwareDatetime
    dry_run: bool = False
    closed: Reason | None = None
    in_force: str = ""

    @property
    def forced(self) -> bool:
        """Return whether the run moves bundles without waiting for hits. Such a run counts no hits."""
        return bool(self.params.force.strip())


class Finding(BaseModel):
    """One finding from validation.

    Attributes:
        subject: the broker or bundle; empty for the whole cluster.
        detail: text with the observed figure or value.
        cause: underlying reason code, for example of a failed request; empty if there is none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: Reason
    subject: str = ""
    detail: str = ""
    cause: str = ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def effect(self) -> Effect:
        """Return the reason's effect on the run, which the run's files also contain."""
        return self.reason.effect

    @model_validator(mode="before")
    @classmethod
    def _without_effect(cls, values: object) -> object:
        return {name: v for name, v in values.items() if name != "effect"} if isinstance(values, dict) else values


class Validation(VersionedDocument):
    """`validation.json`: all findings from a run's validation."""

    FILE: ClassVar[str] = "validation.json"

    findings: tuple[Finding, ...] = ()

    def reasons(self, effect: Effect) -> dict[Reason, int]:
        """Return the number of findings with the given effect, by reason, the most frequent reason first."""
        return dict(Counter(f.reason for f in self.findings if f.effect is effect).most_common())

    @property
    def quarantined(self) -> dict[str, Reason]:
        """Return the brokers and bundles that are left out, each with the reason."""
        return {f.subject: f.reason for f in self.findings if f.effect is Effect.QUARANTINE and f.subject}
