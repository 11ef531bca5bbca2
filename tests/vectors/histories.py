"""Decisions of Pulsar's own compiled classes: histories of random clusters, one JSON document per line.

A history is one cluster run through one strategy object; every step states the cluster and what the class answered.
Names of settings are the brokers' own; a broker's bundle list and a bundle's traffic stay until a step changes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.settings import FIELD_OF_PULSAR_NAME, Settings, validate

if TYPE_CHECKING:
    from collections.abc import Iterator

_RESOURCES = {
    "cpu": "cpu",
    "memory": "memory",
    "directMemory": "direct_memory",
    "bandwidthIn": "bandwidth_in",
    "bandwidthOut": "bandwidth_out",
}


@dataclass(frozen=True)
class Step:
    """One state of a cluster: rows for the strategy, and Pulsar's answer."""

    brokers: list[dict[str, Any]]
    bundles: list[dict[str, Any]]
    expected: dict[str, Any]


@dataclass(frozen=True)
class History:
    """One cluster through one strategy object."""

    name: str
    edge: str
    settings: Settings
    steps: list[Step]


def read(strategy: str) -> list[History]:
    """All histories of a strategy."""
    lines = (Path(__file__).parent / f"{strategy}.jsonl").read_text().splitlines()
    return [_history(json.loads(line)) for line in lines]


def _history(document: dict[str, Any]) -> History:
    conf = {name: value for name, value in document["conf"].items() if name in FIELD_OF_PULSAR_NAME}
    return History(document["id"], document["edge"], validate(conf, where=document["id"]), list(_steps(document)))


def _steps(document: dict[str, Any]) -> Iterator[Step]:
    lists: dict[str, list[str]] = {}
    traffic: dict[str, list[float] | None] = {}
    for step, expected in zip(document["steps"], document["expected"], strict=True):
        traffic.update(step.get("bundles", {}))
        lists.update({name: broker["bundles"] for name, broker in step["brokers"].items() if "bundles" in broker})
        recent = set(step.get("recentlyUnloaded", ()))
        brokers = [_broker(document["id"], name, broker) for name, broker in step["brokers"].items()]
        bundles = [
            {
                "cluster": document["id"],
                "broker": broker,
                "bundle": bundle,
                "msg_rate": float(figures[0] + figures[1]),
                "msg_throughput": float(figures[2] + figures[3]),
                "reason": "recently_unloaded" if bundle in recent else None,
            }
            for broker in step["brokers"]
            for bundle in lists.get(broker, ())
            if (figures := traffic.get(bundle)) is not None
        ]
        yield Step(brokers, bundles, expected)


def _broker(cluster: str, name: str, report: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"cluster": cluster, "broker": name, "left_out": None}
    for theirs, ours in _RESOURCES.items():
        usage, limit = report.get(theirs, (None, None))
        row |= {f"{ours}_usage": _float(usage), f"{ours}_limit": _float(limit)}
    for theirs, ours in (("msgRate", "msg_rate"), ("msgThroughput", "msg_throughput")):
        arriving, leaving = report.get(theirs, (0, 0))
        row |= {f"{ours}_in": float(arriving), f"{ours}_out": float(leaving)}
    return row


def _float(figure: float | None) -> float | None:
    return None if figure is None else float(figure)
