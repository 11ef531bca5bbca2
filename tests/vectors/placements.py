"""Placements of Pulsar's own compiled classes: histories of random clusters and what each was asked.

A step states the cluster, then asks for brokers one after the other; the answer is the set that Pulsar draws from.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.vectors.histories import RESOURCES

from pulsar_rebalancer.config.pulsar_settings import FIELD_OF_PULSAR_NAME
from pulsar_rebalancer.config.settings import Settings, validate
from pulsar_rebalancer.strategies.scoring import percent


@dataclass(frozen=True)
class Ask:
    """One question and what Pulsar answered; `ema` and `planned` where the placement has them."""

    bundle: str
    candidates: list[str]
    eligible: list[str]
    ema: dict[str, float] | None
    planned: str | None


@dataclass(frozen=True)
class Step:
    """One state of a cluster and its asks.

    Attributes:
        brokers: rows of the brokers table; `load_average` is smoothed from step to step.
        rates: long-term message rates by broker, msg/s.
        of_bundle: likewise by bundle.
        preallocated: bundles by broker that they were given to.
        load: what Pulsar says of `load_average`.
    """

    brokers: list[dict[str, Any]]
    rates: dict[str, float]
    of_bundle: dict[str, float]
    preallocated: dict[str, list[str]]
    load: dict[str, float]
    asks: list[Ask]


@dataclass(frozen=True)
class History:
    name: str
    settings: Settings
    steps: list[Step]


def read(placement: str) -> list[History]:
    lines = (Path(__file__).parent / f"{placement}.jsonl").read_text().splitlines()
    return [_history(json.loads(line)) for line in lines]


def _history(document: dict[str, Any]) -> History:
    conf = {name: value for name, value in document["conf"].items() if name in FIELD_OF_PULSAR_NAME}
    settings = validate(conf, label=document["id"])
    return History(document["id"], settings, list(_steps(document, settings)))


def _steps(document: dict[str, Any], settings: Settings) -> Iterator[Step]:
    bundles: dict[str, int] = {}
    long_term: dict[str, float] = {}
    averages: dict[str, float] = {}
    for step, expected in zip(document["steps"], document["expected"], strict=True):
        reports = step["brokers"]
        bundles |= {name: len(report["bundles"]) for name, report in reports.items() if "bundles" in report}
        long_term |= {name: sum(row[4:6]) for name, row in step.get("bundles", {}).items() if row is not None}
        brokers = [_broker(name, report, bundles.get(name, 0)) for name, report in reports.items()]
        averages = {row["broker"]: _average(row, averages.get(row["broker"]), settings) for row in brokers}
        yield Step(
            brokers=[row | {"load_average": averages[row["broker"]]} for row in brokers],
            rates={name: sum(report.get("longTermMsgRate", (0,))) for name, report in reports.items()},
            of_bundle=dict(long_term),
            preallocated={name: report.get("preallocated", []) for name, report in reports.items()},
            load=expected.get("load", {}),
            asks=[
                Ask(ask["bundle"], ask["candidates"], answer["eligible"], answer.get("ema"), answer.get("planned"))
                for ask, answer in zip(step["ask"], expected["place"], strict=True)
            ],
        )


def _broker(name: str, report: dict[str, Any], bundles: int) -> dict[str, Any]:
    row: dict[str, Any] = {"broker": name, "left_out": None, "bundles": bundles}
    for theirs, ours in RESOURCES.items():
        row[f"{ours}_usage"], row[f"{ours}_limit"] = report.get(theirs, (None, None))
    row["msg_rate_in"], row["msg_rate_out"] = report["msgRate"]
    return row


def _average(row: dict[str, Any], before: float | None, settings: Settings) -> float:
    """The extensible load manager's own average: the heap is part of it (BrokerLoadData.updateWeightedMaxEMA)."""
    weighted = (
        percent(row[f"{name}_usage"], row[f"{name}_limit"]) * float(getattr(settings, f"{name}_weight"))
        for name in RESOURCES.values()
    )
    usage, history = max(weighted) / 100, settings.history_percentage
    return usage if before is None else before * history + (1 - history) * usage
