"""What one run starts from: the small documents beside its tables, and the rules that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pulsar_rebalancer import snapshot
from pulsar_rebalancer.choices import Strategy
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.policies import Policies
from pulsar_rebalancer.run import RunRequest, Validation
from pulsar_rebalancer.state import (
    Counting,
    DecisionState,
    HitCount,
    MovesState,
    counting,
    parse_decision,
    parse_moves,
)
from pulsar_rebalancer.storage import ClusterStorage, Folder
from pulsar_rebalancer.strategies.judging import Case

if TYPE_CHECKING:
    from pulsar_rebalancer.settings import Settings


@dataclass(frozen=True)
class RunInput:
    """One run, read from its folder.

    Attributes:
        folder: the run's folder.
        state_folder: where the means of its cluster lie.
        decision: the decision state as collect found it.
        moves: the unload history as collect found it.
        counting: how the sample counts.
        policies: isolation policies, anti-affinity groups and failure domains.
    """

    folder: Folder
    state_folder: Folder
    request: RunRequest
    validation: Validation
    decision: DecisionState
    moves: MovesState
    counting: Counting
    policies: Policies

    @classmethod
    def read(cls, root: str, run: str) -> Self:
        """Read the documents of a run and check its tables' columns.

        Args:
            root: the storage root.
            run: the run's folder.

        Raises:
            SnapshotError: `file_missing`, `file_damaged` or `file_version`.
            StateError: `state_version`.
        """
        folder = Folder(run.rstrip("/"))
        for name in ("brokers", "bundles"):
            _check_table(folder, name)
        request, validation = RunRequest.read(folder), Validation.read(folder)
        kept = (folder / "input" / "state.json").read_json()
        try:
            decision, moves = parse_decision(kept["decision"]), parse_moves(kept["moves"])
        except (KeyError, TypeError):
            raise SnapshotError("file_damaged", f"{folder.uri}/input/state.json is no state") from None
        return cls(
            folder=folder,
            state_folder=ClusterStorage(root, request.cluster).state,
            request=request,
            validation=validation,
            decision=decision,
            moves=moves,
            policies=Policies.read(folder),
            counting=counting(
                decision,
                request.resolved.settings,
                request.collected_at,
                forced=request.forced,
                thresholds=request.params.changes_thresholds,
            ),
        )

    @property
    def cluster(self) -> str:
        """Name of the cluster, the key of every table."""
        return self.request.cluster

    @property
    def settings(self) -> Settings:
        """Effective settings."""
        return self.request.resolved.settings

    @property
    def left_out(self) -> dict[str, str]:
        """Why a broker is neither source nor destination."""
        quarantined = dict.fromkeys(self.validation.quarantined, "broker_quarantined")
        return self._unpaired | quarantined | dict.fromkeys(self.settings.excluded_brokers, "broker_excluded")

    @property
    def _unpaired(self) -> dict[str, str]:
        """Brokers that would take a place in AvgShedder's pairs for nothing: no bundle may go there.

        Those that an isolation policy reserves take the bundles of its namespaces all the same.
        """
        if self.settings.strategy is not Strategy.AVG:
            return {}
        closed = (name for name in self.policies.without_persistent if self.policies.reserved_by(name) is None)
        return dict.fromkeys(closed, "no_persistent_topics")

    @property
    def case(self) -> Case:
        """What a specification starts from."""
        now = self.request.collected_at
        unloaded: dict[str, float] = {}
        for unload in self.moves.unloads.values():
            since = (now - unload.at).total_seconds()
            unloaded[unload.source] = min(since, unloaded.get(unload.source, since))
        return Case(
            settings=self.settings,
            counting=self.counting,
            # Another strategy's averages would be no averages of this one.
            kept=self.decision.kept if self.decision.strategy == self.settings.strategy else {},
            policies=self.policies,
            left_out=self.left_out,
            forced=self.request.forced,
            unloaded_brokers=unloaded,
            seed=self.folder.name,
        )

    @property
    def known_brokers(self) -> list[dict[str, Any]]:
        """Hit counts, and why a broker is neither source nor destination (`tables.KNOWN`)."""
        left_out = self.left_out
        hits = self.decision.hits
        return [
            {
                "cluster": self.cluster,
                "broker": broker,
                "left_out": left_out.get(broker),
                **hits.get(broker, HitCount())._asdict(),
            }
            for broker in sorted(left_out.keys() | hits.keys())
        ]

    @property
    def bundles_passed_over(self) -> list[dict[str, str]]:
        """Why bundles stay (`tables.PASSED_OVER`); a planned move without an outcome counts as unloaded."""
        recent = self.moves.recent(self.request.collected_at, self.settings.grace_period_minutes)
        quarantined = self.validation.quarantined
        reasons = dict.fromkeys((name for name in recent if name not in quarantined), "recently_unloaded")
        return [self._stays(name, reason) for name, reason in reasons.items()] + self.bundles_quarantined

    @property
    def bundles_quarantined(self) -> list[dict[str, str]]:
        """Bundles that validation left out (`tables.PASSED_OVER`)."""
        return [self._stays(name, "bundle_quarantined") for name in self.validation.quarantined]

    def _stays(self, bundle: str, reason: str) -> dict[str, str]:
        return {"cluster": self.cluster, "bundle": bundle, "reason": reason}

    @property
    def known_means(self) -> Folder | None:
        """The means of the last counted sample; None when there are none.

        A file that is gone is no error: bundles start anew with this sample, as they do when Pulsar's leader changes.
        """
        file = self.state_folder / self.decision.means
        return file if self.decision.means and file.exists() else None

    @property
    def new_means(self) -> Folder:
        """Where the means with this sample go."""
        return self.state_folder / f"means-{self.decision.seq + 1}-{self.folder.name[-8:]}.parquet"


def _check_table(run: Folder, name: str) -> None:
    file = run / "input" / f"{name}.parquet"
    file_system, path = file.open()
    try:
        found = pq.read_schema(path, filesystem=file_system)
    except FileNotFoundError:
        raise SnapshotError("file_missing", f"{file.uri} does not exist") from None
    except (OSError, pa.ArrowInvalid) as error:
        raise SnapshotError("file_damaged", f"{file.uri} cannot be read ({type(error).__name__})") from None
    snapshot.check(found, run, name)
