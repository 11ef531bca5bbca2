"""What one run is asked to do, and what validation found: the small documents beside the tables."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, computed_field, model_validator

from pulsar_rebalancer.config.resolution import Resolved, RunParams
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.storage.documents import VersionedDocument


class RunRequest(VersionedDocument):
    """`input/settings.json`: who asked for what, and the effective settings.

    Attributes:
        cluster: name in the clusters file.
        airflow_run_id: the DAG run, inside the file because ids hold `:` and what users type.
        requested_by: the person who started a manual run; empty for scheduled ones.
        collected_at: the time of the sample, the reference for ages and counting.
        closed: why nothing may be moved, as far as that is known before anything is decided; None: something may be.
        in_force: what is in force then, and by whom: a sentence.
    """

    FILE: ClassVar[str] = "input/settings.json"

    cluster: str
    airflow_run_id: str
    requested_by: str = ""
    params: RunParams = RunParams()
    resolved: Resolved
    collected_at: AwareDatetime
    closed: Reason | None = None
    in_force: str = ""

    @property
    def forced(self) -> bool:
        """Whether the run acts without waiting for hits, and counts none."""
        return bool(self.params.force.strip())


class Finding(BaseModel):
    """One thing that validation found.

    Attributes:
        reason: what it is; its effect is what it does to the run.
        subject: the broker or bundle it is about; empty for the cluster as a whole.
        detail: the figure or text that was seen.
        cause: the reason code behind it, such as that of a request that failed; empty when there is none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: Reason
    subject: str = ""
    detail: str = ""
    cause: str = ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def effect(self) -> Effect:
        """What the reason does to the run; files carry it for their readers."""
        return self.reason.effect

    @model_validator(mode="before")
    @classmethod
    def _without_effect(cls, values: object) -> object:
        return {name: v for name, v in values.items() if name != "effect"} if isinstance(values, dict) else values


class Validation(VersionedDocument):
    """`validation.json`: every finding of a run."""

    FILE: ClassVar[str] = "validation.json"

    findings: tuple[Finding, ...] = ()

    def reasons(self, effect: Effect) -> dict[Reason, int]:
        """How often each reason of one effect was found, most frequent first."""
        return dict(Counter(f.reason for f in self.findings if f.effect is effect).most_common())

    @property
    def quarantined(self) -> dict[str, Reason]:
        """The reason by broker or bundle that is left out."""
        return {f.subject: f.reason for f in self.findings if f.effect is Effect.QUARANTINE and f.subject}
