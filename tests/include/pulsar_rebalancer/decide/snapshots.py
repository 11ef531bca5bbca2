import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pulsar_rebalancer.config.clusters_file import RunParams, RunSettings
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide.planning import Plan, Proposal, SourceReport
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.decide.run_plan import plan_request, plan_with_strategy
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.orders.manual_plans import HandedOverPlan, ShownPlan
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.request import Finding, RunRequest, Validation, parse_form
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.run.tables import BROKERS, BUNDLES, CLUSTER, TRAFFIC, Measure, table, write
from pulsar_rebalancer.state import DecisionState, MovesState, StrategyState, Unload
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.sample import CandidateMove, Decision

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def name(number: int, namespace: str = "t/n") -> str:
    return f"{namespace}/0x{number:08x}_0x{number + 1:08x}"


class Snapshots:
    """One cluster and its snapshots."""

    def __init__(self, folder: Path, owned: Mapping[str, Mapping[str, float]], **settings: Any) -> None:
        self.storage = ClusterStorage(str(folder), "east")
        self.owned = {f"{broker}:1": dict(bundles) for broker, bundles in owned.items()}
        self.settings = Settings.model_validate({"mode": "auto"} | settings)
        self.policies = Policies()
        self.quarantined: list[str] = []
        self.unloaded: dict[str, timedelta] = {}
        self.topics: dict[str, int] = {}
        self.onto = "y:1"
        self.ended: dict[str, Any] = {}
        self.started: dict[str, timedelta] = {}
        self.looks_idle: list[str] = []
        self.silent: list[str] = []
        self.ageless: list[str] = []
        self.versions: dict[str, str] = {}
        self.load_manager = "ModularLoadManagerImpl"
        self.state = DecisionState(seq=7, plan_id="before", hits={"a:1": (3, 5)})

    def take(self, *, after: timedelta = timedelta(0), by: str = "ada", **more: Any) -> StoragePath:
        """A snapshot as collect and validate leave it."""
        at = NOW + after
        run = self.storage.new_run_folder(at)
        params = RunParams.model_validate(more.pop("params", {}))
        RunRequest(
            cluster="east",
            airflow_run_id=f"manual__{secrets.token_hex(4)}",
            requested_by=by,
            params=params,
            resolved=RunSettings(settings=self.settings, origins={}),
            collected_at=at,
        ).write(run)
        missing = (Finding(reason="report_missing", subject=each) for each in [*self.quarantined, *self.silent])
        Validation(findings=tuple(missing)).write(run)
        self.policies.write(run)
        cluster = table([{"cluster": "east", "load_manager": self.load_manager}], CLUSTER)
        write(run, {"cluster": cluster, "brokers": self._brokers(), "bundles": self._bundles()})
        history = MovesState(
            unloads={
                bundle: Unload(
                    **{"at": at - age, "plan_id": "p", "source": "x:1", "destination": self.onto} | self.ended
                )
                for bundle, age in self.unloaded.items()
            }
        )
        before = StateBefore(decision=self.state, moves=history).model_dump(mode="json", exclude={"handed_over"})
        (run / StateBefore.FILE).write_json(before | more)
        return run

    def _brokers(self) -> Any:
        listed = [
            {"cluster": "east", "broker": broker, "cpu_usage": sum(held.values()), "cpu_limit": 100.0}
            | dict.fromkeys(TRAFFIC, 0.0)
            | {"msg_throughput_in": sum(held.values()), "topics": len(held), "bundles": len(held)}
            | {"version": self.versions.get(broker)}
            | {"started_at": NOW - self.started.get(broker, timedelta(days=9))}
            | ({"cpu_usage": 0.0} if broker in self.looks_idle else {})
            | ({"started_at": None} if broker in self.ageless else {})
            if broker not in self.silent
            else {"cluster": "east", "broker": broker, "error": "timeout"}
            for broker, held in self.owned.items()
        ]
        return table(listed, BROKERS)

    def _bundles(self) -> Any:
        held: list[dict[str, Any]] = [
            {"cluster": "east", "broker": broker, "bundle": bundle, "msg_throughput_in": traffic, "owners": 1}
            | {"msg_rate_in": traffic, "topics": self.topics.get(bundle, 2), "producers": 3, "consumers": 4}
            for broker, bundles in self.owned.items()
            if broker not in self.silent
            for bundle, traffic in bundles.items()
        ]
        return table([dict.fromkeys(TRAFFIC, 0.0) | row for row in held], BUNDLES)

    def show(self, drains: Any = None, /, **form: Any) -> tuple[Summary, dict[str, str]]:
        run = self.take(**{"drains": drains} if drains else {})
        return plan_request(self.storage, run, parse_form(form), "ada"), fates(run)

    def handed_over(self, summary: Summary) -> HandedOverPlan:
        """The entry of a plan that was handed over, as the state store has it."""
        action = summary.by_hand.request.action if summary.by_hand else None
        shown = ShownPlan(plan_id=summary.plan_id, action=action, at=summary.collected_at, by="ada")
        return HandedOverPlan(plan=shown, run_id="r", at=summary.collected_at, by="bob")


def planned(
    run: RunInput,
    decisions: Iterable[Decision] = (),
    moves: Iterable[CandidateMove] = (),
    sentence: str = "nothing fired",
    state: StrategyState | None = None,
) -> Plan:
    """The plan of a run whose strategy wants these moves."""
    wanted = list(moves)
    sources = {move.source for move in wanted}
    traffic = {each.broker: each.traffic(Measure.THROUGHPUT) for each in run.brokers if each.broker in sources}
    told = SourceReport(list(decisions), sentence, traffic)
    return plan_with_strategy(run, lambda arriving: Proposal(wanted, lambda capped: told, state or StrategyState()))


def fates(run: StoragePath) -> dict[str, str]:
    moves = [CandidateMove.from_row(row) for row in (run / "plan" / "moves.parquet").read_table().to_pylist()]
    return {move.bundle: str(move.destination if move.is_taken else move.reason) for move in moves}
