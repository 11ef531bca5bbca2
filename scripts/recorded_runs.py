"""The runs that `same_decisions.py` decides: clusters that strategies balance, and plans that people make for them.

Settings and state have only what differs from the defaults, so that commits with fewer settings and fields read them.
If a commit no longer has a setting that is used here, delete it here and record again.
"""

from __future__ import annotations

import json
import random
import shutil
import zlib
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scripts.same_decisions import decide, write_lines

from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.run import tables
from pulsar_rebalancer.state import DecisionState
from pulsar_simulator.load import NOBODY
from pulsar_simulator.minutes.machines import BrokerColumns, ClusterRules, CpuSpike, Event, EventKind, RunSpec
from pulsar_simulator.minutes.simulation import Simulation, Unload
from pulsar_simulator.minutes.workload import BundleColumns, Spike, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scripts.same_decisions import Row

START = datetime(2026, 3, 2, 8, tzinfo=UTC)
RUNS = 40
SHEDDERS: dict[str, Row] = {
    "AvgShedder": {"low_threshold": 8, "high_threshold": 25, "hit_count_low": 3},
    "GainShedder": {"low_threshold": 8, "high_threshold": 25, "hit_count_low": 3, "strategy_settings": {"min_gain": 9}},
    "ThresholdShedder": {"min_unload_bundle_throughput": 0, "history_percentage": 0.5, "average_threshold": 8},
    "OverloadShedder": {"overloaded_threshold": 55},
    "UniformLoadShedder": {"throughput_ratio": 1.5, "rate_difference": 40},
    "TransferShedder": {"target_std": 0.05, "hit_count_transfer": 1, "shedding_delay_seconds": 60},
}
PLACEMENTS = ({}, *({"placement": n} for n in ("LeastLongTermMessageRate", "LeastResourceUsageWithWeight")))
PLACEMENTS += ({"placement": "RoundRobinBrokerSelector"},)
KINDS: dict[str, tuple[int, tuple[int, ...], Row]] = {  # brokers, bundles of each namespace, settings
    "plain": (8, (16, 16, 16), {"host_usage_interval_minutes": 3, "credit_swaps": True}),
    "policies": (12, (24, 12, 6, 6, 6, 12), {"failure_domains": True, "max_broker_topics": 60}),
    "caps": (10, (24, 24, 24), {"lower_boundary": True, "min_bundle_share": 0.05, "max_unload_percentage": 0.8}),
    "orders": (8, (20, 20, 20), {"transfer": False}),
    "large": (24, (64,) * 6, {"even_distribution": True, "prefer_later_versions": True, "memory_weight": 1}),
}
EXCLUSIONS = {"namespaces": ["t/ns-5"], "bundles": ["t/ns-0/0x2*"], "brokers": ["b-11:8080"]}
KINDS["policies"][2].update(
    {"shed_policy_bundles": True} | {f"excluded_{name}": names for name, names in EXCLUSIONS.items()}
)
SPLITS: Row = {"max_bundle_topics": 6, "max_bundle_bandwidth": 15, "hit_count_split": 1, "max_splits_per_run": 2}
SPLITS |= {"max_namespace_bundles": 66}
ALGORITHMS = [f"{name}_divide" for name in ("range_equally", "topic_count_equally", "flow_or_qps_equally")]
RESERVED: Row = {"name": "own", "namespaces": ["t/ns-1"], "primary": ["b-0[12]"], "secondary": ["b-03"], "min_limit": 2}
POLICIES: Row = {
    "isolation": [RESERVED],
    "groups": dict.fromkeys(("t/ns-2", "t/ns-3", "t/ns-4"), "apart"),
    "domains": {f"b-{n:02}:8080": f"room-{n % 3}" for n in range(12)},
    "unknown": {"t/ns-5": "timeout"},
    "without_persistent": ["b-10:8080"],
}
_CAPS = (("run", 2), ("broker", 1), ("namespace", 1))
CAPS: tuple[Row, ...] = (
    *({f"max_bundles_per_{name}": most} for name, most in _CAPS),
    {"max_bytes_per_run": 3e7},
    {"max_bundles_per_run": 5, "max_bundles_per_namespace": 3, "max_bytes_per_run": 2e8},
)
QUIET = {
    "low_threshold": 98,
    "high_threshold": 99,
    "average_threshold": 99,
    "overloaded_threshold": 99,
    "target_std": 9,
}
QUIET |= {"rate_difference": 0, "throughput_ratio": 0}
THRESHOLDS = {"low_threshold": 3, "high_threshold": 12, "hit_count_low": 2, "hit_count_high": 1}


def folder_of(root: Path, cluster: str, at: datetime) -> Path:
    """Return the path of a run, whose name depends on cluster and time only."""
    digits = zlib.crc32(f"{cluster} {at}".encode())
    return root / cluster / "runs" / f"date={at:%Y-%m-%d}" / f"{at:%Y%m%dT%H%M%S.%fZ}-{digits:08x}"


def write(folder: Path, documents: dict[str, Row], content: dict[str, pa.Table]) -> None:
    """Write documents and tables to a run or, if their path begins so, to the state's folder."""
    for name, document in documents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps({"version": 1} | document, default=str))
    (folder.parents[2] / "state").mkdir(exist_ok=True)
    for name, table in content.items():
        if "cluster" in table.column_names:  # its first column
            names = pa.array([folder.parts[-4]] * len(table), pa.string())
            table = table.set_column(0, table.schema.field("cluster"), names)
        pq.write_table(table, folder.parents[2] / name if name.startswith("state/") else folder / name)


def means_of(root: Path, cluster: str, means: str) -> dict[str, pa.Table]:
    """Return the tables that a state refers to, by the names of their files."""
    files = [f"state/{name}" for name in (means, means.replace("means", "costs")) if name]
    return {name: pq.read_table(root / cluster / name) for name in files if (root / cluster / name).exists()}


def range_of(bundle: str) -> list[int]:
    """Return the bounds of a bundle."""
    return [int(end, 16) for end in bundle[-21:].split("_")]


class Cluster:
    """A simulated cluster that a strategy balances, run by run; with several strategies, one after the other."""

    def __init__(self, kind: str, strategies: list[str], number: int) -> None:
        self.name = f"{strategies[0]}-{kind}" if strategies[1:] == [] else "changing shedder"
        self.kind, self.strategies, self.number = kind, strategies, number
        self.random = random.Random(self.name)
        self.extensible = kind == "large" or (kind == "plain" and strategies == ["TransferShedder"])
        self.policies = POLICIES if kind == "policies" else {}
        self.kind_of = Policies.model_validate(self.policies)
        self.simulation = Simulation(self._spec(*KINDS[kind][:2]))
        self.now, self.report = START + timedelta(days=number), self.simulation.run_minute()
        self.brokers = self.simulation.spec.brokers.names
        self.held = [(name, i, 1.0) for i, name in enumerate(self.simulation.spec.workload.bundles.names)]
        self.started = dict.fromkeys(self.brokers, self.now - timedelta(days=9))
        self.averages: defaultdict[str, float] = defaultdict(float)
        self.decision: Row = {}
        self.moves: dict[str, Row] = {"unloads": {}, "kept_destinations": {}, "splits": {}}
        self.means: dict[str, pa.Table] = {}
        self.home: list[str] = []

    def _spec(self, count: int, namespaces: tuple[int, ...]) -> RunSpec:
        parts = [(n, i, (1 << 32) // size) for n, size in enumerate(namespaces) for i in range(size)]
        names = [f"t/ns-{n}/0x{i * part:08x}_0x{min((i + 1) * part, 0xFFFFFFFF):08x}" for n, i, part in parts]
        drawn, size = np.random.default_rng(self.number), len(names)
        rate, cost = drawn.lognormal(0, 0.8, size), drawn.lognormal(0, 0.2, size)
        limit, rules = np.full(count, 400.0), ClusterRules(assigns_at_once=self.extensible, late=0.04, missing=0.03)
        # Brokers use 45 percent of their CPU on average.
        rate *= 0.45 * limit.sum() / (200 * (rules.cost.per_message + rules.cost.per_byte * 1024) * cost * rate).sum()
        values = {"msg_size": 1024.0, "fan_out": 1.0, "noise": 0.1, "daily": 0.2, "peak": 12.0, "trend": 0.0}
        columns: Row = {name: np.full(size, value) for name, value in values.items()}
        columns |= {"names": tuple(names), "msg_rate_in": rate, "cost": cost, "clients": np.full(size, 5)}
        spikes = [Spike(drawn.permutation(size)[: size // 4], minute, 6, 3.0) for minute in range(6, 2 * RUNS, 8)]
        weights = drawn.uniform(0.4, 1.6, count - 1)
        brokers = tuple(f"b-{n:02}:8080" for n in range(count))
        restart = (Event(9, 4, EventKind.STOP), Event(21, 4, EventKind.START))
        return RunSpec(
            brokers=BrokerColumns(brokers, limit, np.full(count, 1e6), limit / 50),
            workload=Workload(BundleColumns(**columns), spikes=tuple(spikes), seed=self.number),
            initial_owner=drawn.choice(count - 1, size, p=weights / weights.sum()),
            is_started=np.arange(count) < count - 1,
            rules=rules,
            events=(*restart, Event(28, count - 1, EventKind.START)),
            cpu_spikes=tuple(CpuSpike(minute, 5, minute % (count - 1), 150.0) for minute in range(3, 2 * RUNS, 7)),
            seed=self.number,
        )

    def record(self, root: Path, tick: int) -> Row:
        """Write the next run's folder, and return its case."""
        was, name = self.report.is_registered, f"{self.name}-{tick:02}".replace(" ", "-")
        # One run comes too soon after the last, one much later; brokers sometimes repeat their values.
        self.now += timedelta(seconds={25: 20, 30: 600}.get(tick, 60))
        if tick != 25 and not (self.kind == "plain" and tick % 5 == 4):
            self.report = self.simulation.run_minute()
        for i in np.flatnonzero(self.report.is_registered & ~was):
            self.started[self.brokers[i]] = self.now - timedelta(minutes=2)
        brokers, bundles, (settings, params) = self._brokers(tick), self._bundles(tick), self._settings(tick)
        left_out = [("report_missing", row["broker"]) for row in brokers if row["error"]]
        left_out += [("bad_value", bundles[7]["bundle"])] if tick % 4 == 2 else []
        left_out += [("bad_report_time", self.brokers[5])] if tick % 10 == 7 else []
        left_out += [("two_owners", bundles[3]["bundle"])] if tick % 5 == 3 else []
        about = {"cluster": name, "airflow_run_id": f"scheduled__{tick}", "collected_at": self.now.isoformat()}
        state = {"decision": {"version": 1} | self.decision, "moves": {"version": 1} | self.moves} | self._orders(tick)
        manager = f"{'Extensible' if self.extensible else 'Modular'}LoadManagerImpl"
        cluster = {"cluster": name, "collected_at": self.now, "load_manager": manager}
        documents: dict[str, Row] = {
            "input/settings.json": about | {"params": params, "resolved": {"settings": settings, "origins": {}}},
            "input/state.json": state,
            "input/policies.json": self.policies,
            "input/splits.json": {"bundles": self._candidates(bundles)},
            "validation.json": {"findings": [{"reason": code, "subject": subject} for code, subject in left_out]},
        }
        rows = {"cluster": [cluster], "brokers": brokers, "bundles": bundles}
        content = {f"input/{n}.parquet": tables.table(found, tables.INPUT[n]) for n, found in rows.items()}
        folder = folder_of(root, name, self.now)
        write(folder, documents, content | self.means)
        return {"kind": self.name, "entry": "runs", "cluster": name, "run": str(folder.relative_to(root))}

    def _alive(self, broker: int) -> bool:
        return bool(broker != NOBODY and self.report.is_registered[broker] and self.report.is_reported[broker])

    def _brokers(self, tick: int) -> list[Row]:
        said, rows = self.report.brokers, []
        for i in np.flatnonzero(self.report.is_registered).tolist():
            name, share = self.brokers[i], float(said.cpu[i]) / 400
            row: Row = {"cluster": "", "broker": name, "listings": 1, "error": None if self._alive(i) else "timeout"}
            if self._alive(i):
                self.averages[name] = 0.6 * self.averages[name] + 0.4 * share
                row |= {column: float(getattr(said.traffic, column)[i]) for column in tables.TRAFFIC}
                row |= {f"bandwidth_{w}_{of}": 1e6 for w in ("in", "out") for of in ("usage", "limit")}
                row |= {f"bandwidth_{w}_usage": float(getattr(said, f"bandwidth_{w}")[i]) for w in ("in", "out")}
                row |= {"cpu_usage": 400 * share, "cpu_limit": 400.0, "memory_usage": share, "memory_limit": 1.1}
                row |= {"direct_memory_usage": 300.0 + 9 * i, "direct_memory_limit": 1024.0, "topics": 30}
                row |= {"reserved_by": self.kind_of.reserving_policy(name), "started_at": self.started[name]}
                row |= {
                    "report_age_seconds": 5.0 + float(self.report.report_age_s[i]),
                    "bundles": 9,
                    "host_samples": 100.0,
                }
                row["version"] = "4.0.5" if self.kind == "caps" else f"4.2.{1 if i % 3 or tick < RUNS // 2 else 2}"
                if self.extensible:
                    through = row["msg_throughput_in"] + row["msg_throughput_out"]
                    row |= {"load_average": self.averages[name], "throughput_average": through}
            rows.append(row)
        return rows

    def _bundles(self, tick: int) -> list[Row]:
        rows: list[Row] = []
        for name, bundle, share in self.held:
            owner, topics = self.report.owner[bundle], zlib.crc32(name.encode()) % 9
            if self._alive(owner):
                row: Row = {"cluster": "", "broker": self.brokers[owner], "bundle": name, "owners": 1, "cache_size": 0}
                row |= {n: share * float(getattr(self.report.rates, n)[bundle]) for n in tables.TRAFFIC}
                row |= {"topics": topics, "producers": topics, "consumers": 2 * topics}
                rows.append(row | {"policy": self.kind_of.policy_kind(name.rpartition("/")[0])})
        rows.append(rows[0] | {"bundle": "pulsar/system/0x00000000_0xffffffff"})
        if tick % 5 == 3:  # two brokers report one bundle
            other = next(n for i, n in enumerate(self.brokers) if self._alive(i) and n != rows[3]["broker"])
            rows[3]["owners"] = 2
            rows.append(rows[3] | {"broker": other, "msg_rate_in": 2 * rows[3]["msg_rate_in"]})
        ranks: defaultdict[str, int] = defaultdict(int)
        for row in sorted(rows, key=lambda row: -row["msg_throughput_in"]) if self.extensible else ():
            row["top_rank"] = ranks[row["broker"]]
            ranks[row["broker"]] += 1
        return rows

    def _candidates(self, bundles: list[Row]) -> list[Row]:
        """Return the bundles with the most topics or messages, as candidates for a split."""
        found = []
        orders = [sorted(bundles, key=lambda row: (row[by], row["bundle"]))[-16:] for by in ("topics", "msg_rate_in")]
        for row in {row["bundle"]: row for rows in orders for row in rows}.values():
            (lower, upper), namespace, count = range_of(row["bundle"]), row["bundle"].rpartition("/")[0], row["topics"]
            ends = {end for name, *_ in self.held if name.startswith(f"{namespace}/") for end in range_of(name)}
            shares = [2 * (n + 1) / count / (count + 1) for n in range(count)]
            rates = [[share * row[name] for name in ("msg_rate_in", "msg_throughput_in")] for share in shares]
            topics = [[lower + (upper - lower) // (count + 1) * (n + 1), *each] for n, each in enumerate(rates)]
            found.append({"bundle": row["bundle"], "bounds": sorted(ends), "topics": topics})
        return found

    def _settings(self, tick: int) -> tuple[Row, Row]:
        """Return the effective settings that differ from the defaults, and the parameters of a manual run."""
        strategy = self.strategies[tick // 6 % len(self.strategies)]
        settings: Row = {"mode": "auto", "grace_period_minutes": 4, "strategy": strategy, **SHEDDERS[strategy]}
        places = {} if "low_threshold" in settings else PLACEMENTS[self.number % len(PLACEMENTS)]
        settings |= KINDS[self.kind][2] | places
        params: Row = {}
        if self.kind in ("caps", "large"):
            settings |= {"split_mode": ("auto", "auto", "observe")[tick % 3], "auto_split": tick % 10 == 9, **SPLITS}
            settings["split_algorithm"] = ALGORITHMS[tick // 4 % len(ALGORITHMS)]
            params = CAPS[tick % len(CAPS)] if self.kind == "caps" else {}
        if self.kind == "orders" and tick % 2:
            settings |= {"fill_new_brokers": True, **QUIET} if tick > 28 else {"max_bundles_per_broker": 3}
        if tick == 15:
            return settings, {"force": "a test"} | ({"force_threshold": 2} if "low_threshold" in settings else {})
        if tick == 20 and "low_threshold" in settings:
            params = THRESHOLDS
        if tick == 33:
            params = {"excluded_brokers": [*settings.get("excluded_brokers", ()), self.brokers[0]]}
        return settings | params, params

    def _orders(self, tick: int) -> Row:
        """Return the stored drains, and a rolling restart in all phases of a turn."""
        drains: dict[str, list[str]] = {}
        roll: Row = {}
        if self.kind == "orders":
            drains |= {self.brokers[1]: ["exclusions"]} if 4 <= tick < 12 else {}
            drains |= {self.brokers[2]: ["grace_period", "caps", "overload"]} if 8 <= tick < 12 else {}
            turn, since = 3, (self.now - timedelta(minutes=3)).isoformat()
            if 12 <= tick < 26:
                self.home = self.home or [name for name, i, _ in self.held if self.report.owner[i] == turn]
                drains |= {self.brokers[turn]: ["grace_period"]} if tick < 20 else {}
                phase = "draining" if tick < 18 else "restarting" if tick < 20 else "returning"
                roll = {"version": 1, "id": "ab" * 32, "run_id": "r", "by": "ada", "phase": phase, "home": self.home}
                roll |= {"order": [self.brokers[turn]], "listed": self.brokers, "turn_at": since, "since": since}
        marks = {name: {"at": self.now, "by": "ada", "reason": "disk", "overrule": o} for name, o in drains.items()}
        stored = {"control": {"version": 1}, "drains": {"version": 1, "brokers": marks}}
        return stored | ({"roll": roll} if roll else {})

    def carry_out(self, root: Path, case: Row, decided: Row) -> None:
        """Let the decided moves and splits happen, and keep the state for the next run."""
        self.means = means_of(root, case["cluster"], decided["state"]["means"])
        state = DecisionState.parse(decided["state"], "the recording").with_hits_reset().model_dump(mode="json")
        gone = ("version", "shadow", "placement")
        self.decision = {n: value for n, value in state.items() if value not in ("", {}, None) and n not in gone}
        at, old = self.now.isoformat(), (self.now - timedelta(minutes=25)).isoformat()
        self.moves = {kind: {n: v for n, v in found.items() if v["at"] > old} for kind, found in self.moves.items()}
        index = {name: bundle for name, bundle, _ in self.held}
        head = {"at": at, "plan_id": state["plan_id"]}
        for row in (row for row in decided["moves"] if row["taken"]):
            name, landed = row["bundle"], row["destination"]
            outcome = self.random.choices(("moved", "astray", "interrupted", ""), (85, 7, 4, 4))[0]
            if outcome == "astray":
                landed = self.random.choice([broker for i, broker in enumerate(self.brokers) if self._alive(i)])
            happened = {"outcome": outcome} if outcome else {}
            if outcome in ("moved", "astray"):
                self.simulation.unload([Unload(index[name], self.brokers.index(landed))])
                happened["owner"] = landed
            ends = {"source": row["source"], "destination": row["destination"]}
            self.moves["unloads"][name] = head | ends | happened
            if outcome == "interrupted":
                self.moves["kept_destinations"][name] = head | {
                    "destination": row["destination"],
                    "owner": row["source"],
                }
        for row in (row for row in decided["splits"] if row["taken"]):
            cut = {name: row[name] for name in ("positions", "shares")}
            self.moves["splits"][row["bundle"]] = head | {"outcome": "split"} | cut
            namespace, (lower, upper) = row["bundle"].rpartition("/")[0], range_of(row["bundle"])
            ranges = zip(pairwise([lower, *row["positions"], upper]), row["shares"], strict=True)
            bundle, whole = next((bundle, share) for name, bundle, share in self.held if name == row["bundle"])
            self.held = [each for each in self.held if each[0] != row["bundle"]]
            self.held += [(f"{namespace}/0x{a:08x}_0x{b:08x}", bundle, whole * share) for (a, b), share in ranges]


def forms(run: Path) -> list[Row]:
    """Return what people ask for, for the hottest and coldest brokers of a run."""
    bundles, brokers = (pq.read_table(run / f"input/{name}.parquet").to_pylist() for name in ("bundles", "brokers"))
    there = sorted((-row["cpu_usage"], row["broker"]) for row in brokers if not row["error"])
    hot, second, cold, colder = (there[i][1] for i in (0, 1, -2, -1))
    of_hot = sorted(bundles, key=lambda row: (row["broker"] != hot, -row["msg_rate_in"], row["bundle"]))
    names = [row["bundle"] for row in of_hot[:12]]
    why: Row = {"reason": "test", "overrule": ["policies", "anti_affinity", "topic_ceiling", "exclusions"]}
    lifted: Row = {"reason": "test", "overrule": ["grace_period", "caps", "overload"]}
    return [
        {"action": "unload", "bundles": names[:3], "destination": colder},
        {"action": "unload", "bundles": ["t/ns-1"]},
        {"action": "unload", "bundles": ["t/ns-?/0x[024]*", "t/ns-0/0x4*"]} | lifted,
        {"action": "unload", "bundles": names[:2], "destination": "gone:1"},
        {"action": "unload", "bundles": ["t/ns-0", "t/ns-2", "t/ns-4", "t/ns-5"]} | why,
        {"action": "unload", "bundles": [*names, "t/ns-0/0x00000000_0x00000001"], "destination": cold} | lifted,
        {"action": "drain", "broker": [hot], "reason": "disk"},
        {"action": "drain", "broker": [second, cold], "reason": "disk", "overrule": ["policies", "overload"]},
        {"action": "fill", "broker": [colder]},
        {"action": "fill", "broker": [cold, colder]} | lifted,
        {"action": "undo"},
        {"action": "undo"} | lifted,
        {"action": "split", "bundles": [names[0]], "unload": True},
        {"action": "split", "bundles": ["t/ns-0/LARGEST"], "algorithm": ALGORITHMS[1]},
        {"action": "split", "bundles": ["t/ns-1/HOT"], "algorithm": ALGORITHMS[2]},
        {"action": "split", "bundles": names[:1], "algorithm": "specified_positions_divide"}
        | {"positions": [sum(range_of(names[0])) // 2]},
    ]


def copied(root: Path, case: Row, cluster: str, minutes: float = 0, handed: Row | None = None) -> str:
    """Copy the input of a run to a cluster, as that of a later time, and return the new run."""
    source = root / case["run"]
    names = ["validation.json", *(f"input/{name}.json" for name in ("settings", "state", "policies", "splits"))]
    documents = {name: json.loads((source / name).read_text()) for name in names}
    settings, state = documents["input/settings.json"], documents["input/state.json"]
    at = datetime.fromisoformat(settings["collected_at"]) + timedelta(minutes=minutes)
    settings |= {"cluster": cluster, "collected_at": at.isoformat(), "params": {}}
    state |= {"handed_over": handed} if handed else {}
    content = {name: pq.read_table(source / name) for name in (f"input/{each}.parquet" for each in tables.INPUT)}
    folder = folder_of(root, cluster, at)
    write(folder, documents, content | means_of(root, case["cluster"], state["decision"].get("means", "")))
    return str(folder.relative_to(root))


def undone(run: Path) -> str:
    """Write the outcome of an earlier run, the moves that a run's state has, and return its name."""
    state = json.loads((run / "input/state.json").read_text())
    head: Row = {"plan_id": run.name[:-1] + "f", "cluster": run.parts[-4], "airflow_run_id": "r", "verdict": "open"}
    ends = ("source", "destination", "owner")
    found = [(n, unload) for n, unload in state["moves"]["unloads"].items() if "owner" in unload]
    moves = [{"bundle": n, "reason": unload["outcome"]} | {end: unload[end] for end in ends} for n, unload in found]
    write(run.with_name(head["plan_id"]), {"outcome.json": head | {"ended_at": START, "moves": moves}}, {})
    return str(head["plan_id"])


def later(root: Path, shown: Row, sample: Row, number: int, **case: Any) -> Row:
    """Return the case in which a plan is carried out with the sample of a later run; sometimes too late."""
    at = json.loads((root / shown["run"] / "input/settings.json").read_text())["collected_at"]
    action = shown.get("form", {}).get("action")
    plan = {"plan_id": Path(shown["run"]).name, "action": action, "at": at, "by": "ada"}
    handed = {"plan": plan, "run_id": "r", "at": at, "by": "bob", "approved": not action or number % 2 == 0}
    run = copied(root, sample, shown["cluster"], 70 if number % 12 == 5 else 2, handed)
    return {"entry": "carry", "cluster": shown["cluster"], "run": run, "after": shown["run"], **case}


def manual(root: Path, cases: list[Row], acting: set[str]) -> Iterator[Row]:
    """Yield cases of plans that people ask for, and of plans that are carried out or approved later.

    Args:
        acting: the runs whose plan moves or splits bundles.
    """
    for number, (case, follower) in enumerate(pairwise(cases)):
        if number % 3 == 0 and case["run"] in acting:
            # Half of these plans meet the brokers as they were, the others as they are after the moves.
            yield later(root, case, case if number % 2 else follower, number // 3, kind="approved plan")
        if number % 4 == 0 and case["kind"] == follower["kind"]:
            for turn in (number // 2, number // 2 + 1):
                cluster, form = f"hand-{turn % 16:02}-{case['cluster']}", forms(root / case["run"])[turn % 16]
                shown: Row = {"kind": f"by hand: {form['action']}", "entry": "show", "cluster": cluster, "form": form}
                shown["run"] = copied(root, case, cluster)
                if form["action"] == "undo":
                    form["run"] = undone(root / shown["run"])
                yield shown
                yield later(root, shown, follower, turn, kind=f"carried out: {form['action']}")


def record(corpus: Path) -> None:
    """Simulate, decide and store all runs; the answers are those of the checkout whose packages are imported."""
    shutil.rmtree(corpus, ignore_errors=True)
    root, cases, answers = corpus / "clusters", [], []
    every = [(kind, [shedder]) for kind in KINDS for shedder in SHEDDERS] + [("plain", list(SHEDDERS))]
    clusters = [Cluster(*each, number) for number, each in enumerate(every)]
    for tick in range(RUNS):
        now = [cluster.record(root, tick) for cluster in clusters]
        for cluster, case, found in zip(clusters, now, decide(root, now), strict=True):
            before = {Path(name).name for name in cluster.means}
            cluster.carry_out(root, case, found)
            for file in (root / case["cluster"] / "state").iterdir():
                if file.name not in before:
                    (shutil.rmtree if file.is_dir() else Path.unlink)(file)
            answers.append(found)
        cases += now
        print(f"{len(cases)} runs", flush=True)
    cases.sort(key=lambda case: str(case["run"]))
    acting = {run["run"] for run in answers if any(row["taken"] for row in (*run["moves"], *run["splits"]))}
    by_hand = list(manual(root, cases, acting))
    answers += decide(root, by_hand)
    for folder in root.rglob("plan"):
        shutil.rmtree(folder)
    write_lines(corpus / "cases.jsonl", cases + by_hand)
    write_lines(corpus / "answers.jsonl", answers)
    print(f"{len(answers)} runs recorded, {corpus}")
