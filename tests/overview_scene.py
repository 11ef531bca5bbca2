"""Runs of a cluster as its tasks leave them, decided as the application decides: for what shows them."""

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from pulsar_rebalancer.config.clusters_file import ClusterEntry, RunSettings
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide import plan_files
from pulsar_rebalancer.decide.planning import Plan
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.orders.manual_plans import Drains
from pulsar_rebalancer.orders.order import OrdersInForce
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run.bundle_columns import SAMPLE_SCHEMA, Bundles
from pulsar_rebalancer.run.outcome import ClientGap, MoveOutcome, Outcome
from pulsar_rebalancer.run.plan import SplitOutcome
from pulsar_rebalancer.run.request import Finding, RunRequest, Validation
from pulsar_rebalancer.run.snapshot import Snapshot, StateBefore
from pulsar_rebalancer.run.tables import (
    BROKERS,
    BUNDLES,
    CLUSTER,
    TRAFFIC,
    BrokerSample,
    Measure,
    broker_samples,
    table,
    write,
)
from pulsar_rebalancer.show.page import overview
from pulsar_rebalancer.show.page.facts import AirflowContext
from pulsar_rebalancer.show.page.page_model import Overview
from pulsar_rebalancer.state import DecisionState, ShedderState, StateDocument, StrategyState
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies import caps
from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample
from pulsar_rebalancer.strategies.scoring import predict_scores, score
from pulsar_rebalancer.strategies.shedders.registry import profile_of

PERCENT = 2 * 1024 * 1024
"""Bytes per second that make a percent of CPU."""

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
JUST_NOW = NOW - timedelta(seconds=30)


def broker(number: int) -> str:
    return f"broker-{number}.pulsar.example:8080"


class Scene:
    """One cluster; its hits are kept from run to run, and bundles that were moved stay moved."""

    def __init__(
        self, root: str, loads: Mapping[str, float], *, cluster: str = "east", each: int = 10, **settings: Any
    ) -> None:
        self.storage = ClusterStorage(root, cluster)
        self.settings = Settings.model_validate({"mode": "auto"} | settings)
        self.hits = ShedderState()
        self.namespace = "acme/orders"
        self.findings: tuple[Finding, ...] = ()
        self.drains = Drains()
        self.policies = Policies()
        self.splits: tuple[dict[str, Any], ...] = ()
        self.runs = 0
        self.rolls = False
        self._random = random.Random(1)
        self._width = (1 << 32) // (each * len(loads))
        self.owned: dict[str, dict[int, float]] = {name: {} for name in loads}
        for number, (name, load) in enumerate(loads.items()):
            for part in range(each):
                self.owned[name][number * each + part] = load / each

    def run(
        self,
        at: datetime,
        *,
        verdict: Reason | None = None,
        astray: int = 0,
        seconds: float = 20,
        begun: int = 2,
        **more: Any,
    ) -> StoragePath:
        """A run that begins at a time; one of 0 seconds does not end, and `begun` of its moves have ended by then."""
        self.runs += 1
        folder, cluster = self.storage.new_run_folder(at), self.storage.cluster
        resolved = RunSettings(settings=self.settings, origins={})
        run_id = f"scheduled__{at:%Y-%m-%dT%H:%M:%S}+00:00"
        request = RunRequest(cluster=cluster, airflow_run_id=run_id, resolved=resolved, collected_at=at, **more)
        request.write(folder)
        validation = Validation(findings=self.findings)
        validation.write(folder)
        self.policies.write(folder)
        StateBefore(drains=self.drains).write(folder)
        brokers, bundles = self._tables(at)
        write(folder, {"cluster": table([], CLUSTER), "brokers": brokers, "bundles": bundles})
        ended: dict[str, Any] = {"plan_id": folder.name, "cluster": cluster, "airflow_run_id": run_id}
        ended["ended_at"] = at + timedelta(seconds=seconds)
        if validation.reason_counts(Effect.BLOCK):
            Outcome(**ended, verdict=Reason.BLOCKED).write(folder)
            return folder
        taken = self._plan(folder, request, brokers, bundles)
        verdict = verdict or (Reason.OBSERVE if self.settings.mode != "auto" else Reason.OPEN)
        verdict = verdict if taken or self.splits else Reason.NOTHING_TO_DO
        moves = [self._moved(move, astray=number < astray) for number, move in enumerate(taken)]
        if not seconds:
            ended_moves = [move.model_dump(mode="json") for move in moves[:begun]]
            if begun:
                (folder / "unload" / "wave-00.json").write_json(ended_moves)
            return folder
        if verdict is Reason.OPEN:
            ended |= {"moves": tuple(moves), "splits": tuple(_split(row) for row in self.splits if row["taken"])}
        Outcome(**ended, verdict=verdict).write(folder)
        if verdict is Reason.OPEN:
            self._carry_out(moves)
        return folder

    def _tables(self, at: datetime) -> tuple[pa.Table, pa.Table]:
        noise = {name: 1 + self._random.uniform(-0.02, 0.02) for name in self.owned}
        listed: list[dict[str, Any]] = []
        held: list[dict[str, Any]] = []
        for name, bundles in self.owned.items():
            load = sum(bundles.values()) * noise[name]
            carried = sum(bundles.values()) * PERCENT
            listed.append(
                dict.fromkeys(TRAFFIC, 0.0)
                | {"cluster": self.storage.cluster, "broker": name, "collected_at": at, "listings": 1}
                | {"cpu_usage": load * 8, "cpu_limit": 800.0, "host_samples": 100.0}
                | {"direct_memory_usage": 100.0, "direct_memory_limit": 2000.0}
                | {"bandwidth_in_usage": load * 4e4, "bandwidth_in_limit": 1e7}
                | {"bandwidth_out_usage": load * 7e4, "bandwidth_out_limit": 1e7}
                | {"msg_throughput_in": carried, "msg_rate_in": carried / 1024}
                | {"topics": 4 * len(bundles), "bundles": len(bundles)}
            )
            held += [
                dict.fromkeys(TRAFFIC, 0.0)
                | {"cluster": self.storage.cluster, "broker": name, "bundle": self._name(number), "owners": 1}
                | {"msg_throughput_in": load * PERCENT, "msg_rate_in": load * PERCENT / 1024}
                | {"topics": 4, "producers": 3, "consumers": 5}
                for number, load in bundles.items()
            ]
        return table(listed, BROKERS), table(held, BUNDLES)

    def to_split(self, number: int, **more: Any) -> dict[str, Any]:
        """The row of a bundle that the next plan cuts in two; `more` replaces its fields."""
        bundle, owner = self._name(number), next(name for name, held in self.owned.items() if number in held)
        found = {"cluster": self.storage.cluster, "broker": owner, "bundle": bundle, "rank": 0, "unload": True}
        found |= {"condition": "msg_rate", "value": 30_123.4, "bound": 30_000.0, "algorithm": "range_equally_divide"}
        found |= {"positions": [number * self._width + 16], "shares": [0.61, 0.39], "taken": True}
        return found | {"reason": Reason.TO_BE_SPLIT, "explanation": f"{bundle} has 30,123 msg/s"} | more

    def _name(self, number: int) -> str:
        return f"{self.namespace}/0x{number * self._width:08x}_0x{(number + 1) * self._width:08x}"

    def _plan(
        self, folder: StoragePath, request: RunRequest, brokers: pa.Table, bundles: pa.Table
    ) -> list[CandidateMove]:
        left_out = dict.fromkeys(Validation.read(folder).quarantine_reasons, Reason.BROKER_QUARANTINED)
        samples = broker_samples(brokers.to_pylist(), left_out)
        sample = ClusterSample(samples, Bundles(_with_means(bundles)), self.settings)
        result = profile_of(self.settings).shed(sample, self.hits)
        self.hits = result.state
        moves = caps.apply_caps(result.moves, self.settings, {}, samples)
        moves = [move.put_off(Reason.ROLLING) for move in moves] if self.rolls else moves
        taken = [move for move in moves if move.is_taken]
        hits = {name: count for name, count in self.hits.hits.items() if name}
        kept = StrategyState(shedder=self.hits).document()
        counted = {"plan_id": folder.name, "counted_at": request.collected_at}
        state = DecisionState(seq=self.runs, **counted, hits=hits, strategy_state=kept)
        before = {each.broker: score(each, self.settings) for each in sample.compared_brokers}
        gaps = [decision.gap for decision in result.decisions if decision.gap is not None]
        plan_files.write_plan(
            Snapshot(folder),
            Plan(result.decisions, moves, sentence=result.sentence),
            state,
            self.splits,
            **plan_files.summary_scores(before, predict_scores(before, taken, _traffic(samples, taken)), ()),
            counting=Reason.COUNTED,
            pairs=len(gaps),
            pairs_over=sum(gap >= self.settings.low_threshold for gap in gaps),
            pairs_fired=sum(decision.fired for decision in result.decisions),
            hits=(0, 0),
            splits_told=tuple(row["explanation"] for row in self.splits),
        )
        return taken

    @staticmethod
    def _moved(move: CandidateMove, *, astray: bool) -> MoveOutcome:
        owner = "" if astray else move.destination or ""
        return MoveOutcome(
            bundle=move.bundle,
            source=move.source,
            destination=move.destination or "",
            owner=owner,
            reason=Reason.UNKNOWN_OWNER if astray else Reason.MOVED,
            attempts=1,
            seconds=0.8,
            error="nobody owned it within 30 s" if astray else "",
            client_gap=ClientGap(unknown="the bundle has no known owner")
            if astray
            else ClientGap(
                owner_seconds=0.2, clients_seconds=1.24, watched_seconds=1.24, clients_before=8, clients_back=8
            ),
        )

    def _carry_out(self, moves: Sequence[MoveOutcome]) -> None:
        numbers = {self._name(number): number for held in self.owned.values() for number in held}
        for move in moves:
            if move.ok:
                number = numbers[move.bundle]
                self.owned[move.destination][number] = self.owned[move.source].pop(number)


def _split(row: Mapping[str, Any]) -> SplitOutcome:
    positions = tuple(row["positions"])
    return SplitOutcome(bundle=row["bundle"], positions=positions, found=positions, reason=Reason.SPLIT, attempts=1)


def _with_means(bundles: pa.Table) -> pa.Table:
    found = bundles.append_column("msg_rate", bundles["msg_rate_in"])
    found = found.append_column("msg_throughput", bundles["msg_throughput_in"])
    nothing = pa.nulls(bundles.num_rows)
    for name in ("long_term_msg_rate", "load", "reason"):
        found = found.append_column(name, nothing)
    return found.select(SAMPLE_SCHEMA.names)


def _traffic(samples: Sequence[BrokerSample], taken: Sequence[CandidateMove]) -> dict[str, float]:
    measure = taken[0].measure if taken else Measure.RATE
    return {each.broker: each.traffic(measure) for each in samples}


def uneven(brokers: int, *, hottest: float = 82.0, coldest: float = 14.0) -> dict[str, float]:
    """Loads of a cluster: one hot, one cold, the others in between."""
    step = 20 / max(1, brokers - 3)
    loads = [hottest, *(38 + step * number for number in range(brokers - 2)), coldest]
    return {broker(number): load for number, load in enumerate(loads)}


def history(scene: Scene, until: datetime, runs: int) -> None:
    for back in reversed(range(runs)):
        scene.run(until - timedelta(seconds=back * scene.settings.interval_seconds))


def seen(made: Scene, *, error: str = "", **facts: Any) -> Overview:
    """The page of a cluster; its card in the list says the same."""
    entry = ClusterEntry(name="east", given={}, settings=made.settings, error=error)
    documents = [facts.pop(name) for name, value in [*facts.items()] if isinstance(value, StateDocument)]
    orders = OrdersInForce.build(*documents, lost=facts.pop("lost", ""))
    known = AirflowContext(**{"next_run_at": NOW + timedelta(seconds=30), "orders": orders} | facts)
    found = overview.current_overview(made.storage, entry, known, NOW)
    assert overview.cluster_status(made.storage, entry, known, NOW) == found.status
    return found
