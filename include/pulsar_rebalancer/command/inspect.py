"""Show a cluster's scores, the moves that would follow, and what keeps the cluster unbalanced.

The command needs no Airflow and sends only GET requests. Set the token in the environment variable
PULSAR_TOKEN, and other connection fields in variables such as PULSAR_CA_FILE and PULSAR_CREDENTIALS_FILE, or
all of them in the YAML file that --connection names. Exit codes:

  0  there are no findings
  1  there are findings
  2  the cluster cannot be read, or the command is wrong
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from pulsar_rebalancer.command.inspection import inspect_cluster
from pulsar_rebalancer.errors import RebalancerError, SettingsError
from pulsar_rebalancer.pulsar import AdminConnection, PulsarAdmin
from pulsar_rebalancer.pulsar.connection import EXTRAS, checked_extra, connection_of
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.texts import number_of

FINE, FOUND, UNREADABLE = 0, 1, 2

_MAX_LISTED = 10
_SECONDS_BY_UNIT = {"": 1, "s": 1, "m": 60, "h": 3600}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", help="address of a broker, such as http://broker:8080")
    parser.add_argument("--for", dest="seconds", type=_to_seconds, default=0.0, help="total sampling time, such as 10m")
    parser.add_argument("--every", type=_to_seconds, default=60.0, help="time between samples (default: 60s)")
    parser.add_argument("--connection", type=Path, help="YAML file with the fields of the connection")
    parser.add_argument("--topic", default="", help="also show this topic's bundle, and why the bundle moves or stays")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the page of the cluster to this file")
    parser.add_argument("--json", action="store_true", help="print a JSON document")


def _to_seconds(text: str) -> float:
    match = re.fullmatch(r"(\d{1,6})([smh]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90s, 10m or 1h")
    return float(int(match[1]) * _SECONDS_BY_UNIT[match[2]])


def run(args: argparse.Namespace) -> int:
    try:
        connection = connection_to(args.url, args.connection)
        with tempfile.TemporaryDirectory(prefix="pulsar-inspect-") as folder:
            document = asyncio.run(_inspection_document(connection, args, folder))
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return UNREADABLE
    except RebalancerError as error:
        print(" ".join(filter(None, [f"{error.message} [{error.reason}].", error.reason.action])), file=sys.stderr)
        return UNREADABLE
    print(json.dumps(document, indent=2) if args.json else "\n".join(text_lines(document)))
    return FOUND if document["findings"] else FINE


async def _inspection_document(connection: AdminConnection, args: argparse.Namespace, folder: str) -> dict[str, Any]:
    async with PulsarAdmin(connection) as admin:
        seen = await inspect_cluster(admin, folder, args.seconds, max(5.0, args.every), args.topic)
    if args.html:
        args.html.write_text(seen.html_page(), encoding="utf-8")
    return seen.json_document()


def connection_to(url: str, extras: Path | None) -> AdminConnection:
    values = {name: os.environ.get(f"PULSAR_{name.upper()}") for name in (*EXTRAS, "token")}
    extra = checked_extra(values, EXTRAS | {"token"}, "environment")
    if extras is not None:
        try:
            extra |= checked_extra(yaml.safe_load(extras.read_text(encoding="utf-8")), EXTRAS | {"token"}, extras.name)
        except (OSError, ValueError, yaml.YAMLError) as error:
            # The text is not shown: it may hold the token.
            raise SettingsError(Reason.WRONG_SETTING, f"{extras.name} cannot be read: {type(error).__name__}") from None
    token = str(extra.pop("token", "")).strip()
    return replace(connection_of((url,), token, extra), read_only=True)


def text_lines(doc: dict[str, Any]) -> Iterator[str]:
    limits = ", ".join(f"{kind}: {each['hits']} hits at {each['gap']:g}" for kind, each in doc["thresholds"].items())
    last = doc["samples"][-1]
    yield f"{doc['cluster']} at {doc['sampled_at']}: {number_of(len(doc['brokers']), 'broker')}"
    width = max((len(each["broker"]) for each in doc["brokers"]), default=0)
    for each in doc["brokers"]:
        score = "   none" if each["score"] is None else f"{each['score']:7.2f}"
        yield f"  {each['broker']:{width}} {score}  {each['resource']}  {each['why']}".rstrip()
    yield f"pairs of {doc['shedder']} ({limits or 'no thresholds'})"
    for pair in last["pairs"][:_MAX_LISTED]:
        hits = ", ".join(f"{kind} {each['have']}/{each['need']}" for kind, each in pair["hits"].items())
        yield f"  {pair['source']} -> {pair['destination']}: gap {pair['gap']:.2f}, hits {hits}, {pair['reason']}"
    if len(doc["samples"]) > 1:
        yield "samples"
        for sample in doc["samples"]:
            plan, most_hits = sample["plan"], {"low": 0, "high": 0}
            for pair in sample["pairs"]:
                most_hits = {kind: max(n, pair["hits"].get(kind, {}).get("have", 0)) for kind, n in most_hits.items()}
            yield f"  {sample['at']}: {most_hits['low']} low hits, {most_hits['high']} high hits; {_moves_text(plan)}"
    yield f"if the load does not change, {doc['shedder']} {_moves_text(doc['if_it_lasts'])}"
    for move in (doc["if_it_lasts"] or {}).get("moves", ())[:_MAX_LISTED]:
        yield f"  {move['bundle']}: {move['from']} -> {move['to']}"
    own = doc["configured"]
    action = _moves_text(own["if_it_lasts"]) if own["if_it_lasts"] else "is unknown to the rebalancer"
    yield f"Pulsar's own {own['shedder']} with placement {own['placement']} (shedding {own['shedding']}) {action}"
    for place in doc.get("topic", ()):
        yield f"{place['topic']}: {place['bundle']} on {place['broker'] or 'no broker'} ({place['load'] or 'idle'})"
        yield f"  {place['why']}"
    yield "findings" if doc["findings"] else "no findings"
    for found in doc["findings"]:
        code = f" [{found['reason']}]" if found["reason"] else ""
        yield f"  {found['what']}{code}"
        yield f"    seen: {found['evidence']}"
        if found["fix"]:
            yield f"    fix: {found['fix']}"


def _moves_text(plan: dict[str, Any] | None) -> str:
    if plan is None:
        return "would decide nothing, because validation blocks the run"
    if not plan["bundles"]:
        return f"would move nothing ({plan['sentence']})"
    return f"would move {number_of(plan['bundles'], 'bundle')}; range {plan['range']} -> {plan['predicted_range']}"
