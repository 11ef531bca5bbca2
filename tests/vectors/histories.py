"""Decisions of Pulsar's own compiled classes: histories of random clusters, one JSON document per line.

A history is one cluster run through one strategy object; every step states the cluster and what the class answered.
Names of settings are the brokers' own; a broker's bundle list and a bundle's traffic stay until a step changes them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.vectors.rows import sample

from pulsar_rebalancer.config.pulsar_settings import FIELD_OF_PULSAR_NAME
from pulsar_rebalancer.config.settings import Settings, validate
from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state import HitCount
from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample, Decision

RESOURCES = {
    "cpu": "cpu",
    "memory": "memory",
    "directMemory": "direct_memory",
    "bandwidthIn": "bandwidth_in",
    "bandwidthOut": "bandwidth_out",
}
"""Our name of a resource by the vectors' name."""


@dataclass(frozen=True)
class Step:
    """One state of a cluster: rows for the strategy, and Pulsar's answer.

    Attributes:
        brokers: those that report.
        bundles: those with data on a broker that lists them.
        expected: what the class answered.
        silent: brokers that are gone from the load data before the list of active brokers has changed.
        unloaded_brokers: seconds from a broker's last unload to its report.
        removed: brokers that filters take away, by namespace.
    """

    brokers: list[dict[str, Any]]
    bundles: list[dict[str, Any]]
    expected: dict[str, Any]
    silent: frozenset[str] = frozenset()
    unloaded_brokers: dict[str, float] = field(default_factory=dict)
    removed: dict[str, set[str]] = field(default_factory=dict)

    def forbids(self, bundle: str, source: str, destination: str) -> Reason | None:
        """Why a bundle must not go to a destination: the filters take it away."""
        return Reason.POLICY_FORBIDS if destination in self.removed.get(namespace_of(bundle), ()) else None


@dataclass(frozen=True)
class History:
    name: str
    edge: str
    settings: Settings
    steps: list[Step]

    def listed(self, step: Step, *, silent: bool = False) -> list[dict[str, Any]]:
        """Rows of the brokers of a step; silent ones, when they are wanted, are listed but left out."""
        return [*step.brokers, *({"broker": name, "left_out": "report_missing"} for name in step.silent if silent)]

    def sample(self, step: Step, *, silent: bool = False, **more: Any) -> ClusterSample:
        """What a shedder sees of a step."""
        return sample(
            self.listed(step, silent=silent),
            step.bundles,
            self.settings,
            unloaded_brokers=step.unloaded_brokers,
            forbids=step.forbids,
            **more,
        )


def read(strategy: str) -> list[History]:
    lines = (Path(__file__).parent / f"{strategy}.jsonl").read_text().splitlines()
    return [_history(json.loads(line)) for line in lines]


def unload_of(moves: Iterable[CandidateMove]) -> dict[str, list[str]]:
    """Bundles taken by broker, in order: `unload` of what is expected."""
    unload: dict[str, list[str]] = {}
    for move in moves:
        if move.is_taken:
            unload.setdefault(move.source, []).append(move.bundle)
    return unload


def with_the_departed(
    settings: Settings,
    step: Step,
    before: Mapping[str, HitCount],
    pairs: Iterable[Decision],
    after: Mapping[str, HitCount],
) -> dict[str, HitCount]:
    """Hits as Pulsar's AvgShedder keeps them: of brokers that are gone until no pair is above the low threshold."""
    listed = {row["broker"] for row in step.brokers}
    over = any(pair.gap is not None and pair.gap >= settings.low_threshold for pair in pairs)
    return {**({name: hit for name, hit in before.items() if name not in listed} if over else {}), **after}


def _history(document: dict[str, Any]) -> History:
    conf = {name: value for name, value in document["conf"].items() if name in FIELD_OF_PULSAR_NAME}
    settings = validate(conf, label=document["id"])
    return History(document["id"], document["edge"], settings, list(_steps(document, settings)))


def _steps(document: dict[str, Any], settings: Settings) -> Iterator[Step]:
    lists: dict[str, list[str]] = {}
    tops: dict[str, list[list[Any]]] = {}
    traffic: dict[str, list[float] | None] = {}
    active: set[str] = set()
    for step, expected in zip(document["steps"], document["expected"], strict=True):
        present = step["brokers"]
        traffic.update(step.get("bundles", {}))
        lists.update({name: broker["bundles"] for name, broker in present.items() if "bundles" in broker})
        tops.update({name: broker["top"] for name, broker in present.items() if "top" in broker})
        active = (active & set(step.get("active", active))) | present.keys()
        bundles = [
            _bundle(document["id"], broker, bundle, list(map(float, values[:4])), step, settings)
            for broker in present
            for bundle in lists.get(broker, ())
            if (values := traffic.get(bundle)) is not None
        ]
        for broker in present:
            for rank, (bundle, arriving, leaving) in enumerate(tops.get(broker, ())):
                values = [0.0, 0.0, float(arriving), float(leaving)]
                row = _bundle(document["id"], broker, bundle, values, step, settings)
                bundles.append(row | {"top_rank": rank})
        yield Step(
            [_broker(document["id"], name, broker, len(lists.get(name, ()))) for name, broker in present.items()],
            bundles,
            expected,
            frozenset(active - present.keys()),
            step.get("recentlyUnloadedBrokers", {}),
            _removed(step, bundles),
        )


def _removed(step: dict[str, Any], bundles: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Brokers by namespace that a filter takes away: all when it fails, those that are not registered in any case."""
    unregistered = step["brokers"].keys() - set(step.get("available", step["brokers"]))
    removed = {namespace_of(row["bundle"]): set(unregistered) for row in bundles}
    for namespace, brokers in step.get("filterRemoves", {}).items():
        removed.setdefault(namespace, set()).update(brokers)
    for namespace in step.get("filterFails", ()):
        removed.setdefault(namespace, set()).update(step["brokers"])
    return removed


def _bundle(
    cluster: str, broker: str, bundle: str, values: list[float], step: dict[str, Any], settings: Settings
) -> dict[str, Any]:
    rate_in, rate_out, throughput_in, throughput_out = values
    namespace = namespace_of(bundle)
    reason = None
    if bundle in step.get("recentlyUnloaded", ()):
        reason = "recently_unloaded"
    elif bundle in step.get("notOwned", ()):
        reason = "owner_changed"
    elif namespace in settings.excluded_namespaces:
        reason = "namespace_excluded"
    isolated, grouped = (namespace in step.get(name, ()) for name in ("isolated", "antiAffinity"))
    return {
        "cluster": cluster,
        "broker": broker,
        "bundle": bundle,
        "msg_rate_in": rate_in,
        "msg_rate_out": rate_out,
        "msg_throughput_in": throughput_in,
        "msg_throughput_out": throughput_out,
        "msg_rate": rate_in + rate_out,
        "msg_throughput": throughput_in + throughput_out,
        "policy": "isolation" if isolated else "anti_affinity" if grouped else None,
        "reason": reason,
    }


def _broker(cluster: str, name: str, report: dict[str, Any], bundles: int) -> dict[str, Any]:
    row: dict[str, Any] = {"cluster": cluster, "broker": name, "left_out": None, "bundles": bundles}
    for theirs, ours in RESOURCES.items():
        usage, limit = report.get(theirs, (None, None))
        row |= {f"{ours}_usage": _float(usage), f"{ours}_limit": _float(limit)}
    for theirs, ours in (("msgRate", "msg_rate"), ("msgThroughput", "msg_throughput")):
        arriving, leaving = report.get(theirs, (0, 0))
        row |= {f"{ours}_in": float(arriving), f"{ours}_out": float(leaving)}
    return row | {"report_age_seconds": float(report.get("ageSec", 0))}


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)
