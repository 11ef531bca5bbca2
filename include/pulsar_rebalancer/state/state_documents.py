"""The documents that are stored between runs.

Two of the documents are defined here: `decision` (written by the *record* task, then by the gate) and `moves` (written
by the *split* and *unload* tasks, then by *report*). As in Pulsar's AvgShedder, each broker has its own hits. Zero
counts are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from pulsar_rebalancer.errors import StateError
from pulsar_rebalancer.reasons import Reason, Trait

VERSION = 1


class HitCount(NamedTuple):
    """A broker's number of consecutive hits at each threshold."""

    high: int = 0
    low: int = 0


class CountedSample(NamedTuple):
    """The last sample in which a broker caused a hit.

    Attributes:
        figure: the figure that caused the hit: AvgShedder's score in percent, or TransferShedder's load (1 is 100
            percent).
        at: when the sample was collected.
    """

    figure: float
    at: AwareDatetime


class StateDocument(BaseModel):
    """A document of the state store.

    Attributes:
        KEY: the document's key in the store.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    KEY: ClassVar[str]

    version: int = VERSION

    @classmethod
    def parse(cls, document: Any) -> Self:
        """Return the parsed document; if the store has none (None), return the initial document.

        Raises:
            StateError: `state_version` if the document has another version or is damaged.
        """
        if document is None:
            return cls()
        stored = f"the stored document {cls.KEY!r}"
        version = document.get("version") if isinstance(document, Mapping) else None
        if version != VERSION:
            raise StateError(
                Reason.STATE_VERSION, f"{stored} has version {version!r:.80}, this release reads {VERSION}"
            )
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            raise StateError(Reason.STATE_VERSION, f"{stored} cannot be read: {why}") from None


class DecisionState(StateDocument):
    """The `decision` document.

    Attributes:
        seq: sequence number, which increases by one with every recorded plan.
        plan_id: the last recorded plan. The gate opens only for this plan.
        plan_hash: the plan's hash when it was recorded, to detect later changes to the plan's files.
        counted_at: time of the last sample that counted.
        strategy: the strategy whose hits are counted.
        hits: AvgShedder's hit counts, by broker, without zero counts.
        kept: state of a strategy other than AvgShedder and of its placement, each in its own format.
        samples: samples that caused a hit within the last host interval, by broker.
        restarts: brokers whose hits are reset once the plan is carried out, each with the sample that the plan used.
        means: file with the bundles' moving averages, in the cluster's state folder; empty if there is none.
        split_hits: number of consecutive samples that met a split condition, by bundle; extensible load manager only.
    """

    KEY: ClassVar[str] = "decision"

    seq: int = 0
    plan_id: str = ""
    counted_at: AwareDatetime | None = None
    plan_hash: str = ""
    strategy: str = ""
    hits: dict[str, HitCount] = {}
    kept: dict[str, Any] = {}
    samples: dict[str, CountedSample] = {}
    restarts: dict[str, CountedSample] = {}
    means: str = ""
    split_hits: dict[str, int] = {}

    @property
    def costs(self) -> str:
        """Return the name of the file with the bundles' costs. It exists only if a strategy learned from the sample."""
        return self.means.replace("means", "costs", 1)

    @property
    def files(self) -> frozenset[str]:
        """Return the names of the state folder's files that this state refers to."""
        return frozenset(filter(None, (self.means, self.costs)))

    def carried_out(self) -> Self:
        """Return the state after the plan is carried out: the hits of the brokers in `restarts` are reset."""
        if not self.restarts:
            return self
        changed = {
            "hits": {broker: hit for broker, hit in self.hits.items() if broker not in self.restarts},
            "kept": {
                part: {name: value for name, value in figures.items() if name != "hits"}
                for part, figures in self.kept.items()
            },
            "samples": dict(sorted((self.samples | self.restarts).items())),
            "restarts": {},
        }
        return self.model_copy(update=changed)


class Unload(BaseModel):
    """The last planned or completed unload of a bundle.

    Attributes:
        at: when the move ended; until then, when it was planned.
        outcome: reason code of the result; empty while the move is only planned. A planned move already counts as a
            recent unload.
        owner: the owner that the brokers reported afterwards; empty if unknown.
        tries: number of runs in a row, including this one, that tried to move the bundle to this destination.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: AwareDatetime
    plan_id: str
    source: str
    destination: str
    outcome: Reason | Literal[""] = ""
    owner: str = ""
    tries: int = 1

    def missed(self, broker: str) -> bool:
        """Return whether the bundle was to move to this broker and, as far as is known, did not arrive there."""
        return self.destination == broker and not (self.outcome and self.outcome.has(Trait.ON_PLANNED_BROKER))


class KeptDestination(BaseModel):
    """A destination that the leader might still store, because an unload reached the leader and then failed.

    The leader uses the destination for the bundle's next placement (ModularLoadManagerImpl.setNamespaceBundleAffinity).
    The leader drops the destination when the bundle gets a new owner, and replaces it at the next unload.

    Attributes:
        at: when the unload failed.
        owner: the broker that still owned the bundle after the failure; empty if unknown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: AwareDatetime
    plan_id: str
    destination: str
    owner: str


class BundleSplit(BaseModel):
    """A planned or completed split of a bundle.

    Attributes:
        at: when the split ended; until then, when it was planned.
        positions: hashes at which the bundle is split.
        shares: share of the bundle's traffic that each part receives, 0 to 1.
        outcome: reason code of the result; empty while the split is planned.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: AwareDatetime
    plan_id: str
    positions: tuple[int, ...]
    shares: tuple[float, ...]
    outcome: Reason | Literal[""] = ""


class MovesState(StateDocument):
    """The `moves` document.

    Attributes:
        unloads: the last unload of each recently unloaded bundle, by bundle.
        kept: destinations that the leader might still store, by bundle.
        splits: recent splits, by the name of the bundle that was split.
    """

    KEY: ClassVar[str] = "moves"

    unloads: dict[str, Unload] = {}
    kept: dict[str, KeptDestination] = {}
    splits: dict[str, BundleSplit] = {}

    def recent(self, now: datetime, grace_minutes: float) -> dict[str, Unload]:
        """Return the unloads within the grace period.

        As in ModularLoadManagerImpl, an unload is dropped if `ts < now - grace`.

        If the clock was set back, unloads can be in the future. They are dropped if they are ahead by more than the
        grace period.
        """
        grace = timedelta(minutes=grace_minutes)
        return {bundle: unload for bundle, unload in self.unloads.items() if -grace <= now - unload.at <= grace}
