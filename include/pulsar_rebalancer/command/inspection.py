"""One look at a cluster through a read-only connection: samples, what strategies would do, as a JSON document.

Files lie in a folder that the caller removes. Every judgement is a run's: `collect_sample`, `validate`, `plan_run`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from pulsar_rebalancer.collect.broker_settings import Runtimes, read_runtimes
from pulsar_rebalancer.collect.collector import RunTrigger, Sample, collect_sample, write_sample
from pulsar_rebalancer.command import advice
from pulsar_rebalancer.config.clusters_file import ClusterEntry, RunParams
from pulsar_rebalancer.config.settings import validate as settings_of
from pulsar_rebalancer.decide.plan_files import write_run_plan
from pulsar_rebalancer.decide.run_input import RunBundles, RunInput
from pulsar_rebalancer.decide.run_plan import learn_from_run, plan_run
from pulsar_rebalancer.decide.validation import validate_run
from pulsar_rebalancer.pulsar import PulsarAdmin
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run import bundle_columns
from pulsar_rebalancer.run.outcome import conclude_run
from pulsar_rebalancer.run.plan import Summary, read_moves, read_plan_state
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.run.tables import MEANS, table
from pulsar_rebalancer.show.page.brokers import pair_views
from pulsar_rebalancer.show.page.overview import run_overview
from pulsar_rebalancer.show.page.page_model import Overview, PairView
from pulsar_rebalancer.show.page.recent_runs import read_run
from pulsar_rebalancer.show.page.timeline import make_timeline
from pulsar_rebalancer.state import DecisionState
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.shedders.registry import checked_settings, profile_of, settings_of_classes

_MAX_MOVES_LISTED = 20


@dataclass
class SampleJudge:
    """A strategy that judges every sample, and keeps its state from one to the next as runs do.

    `changes` are the settings in which it differs from the product's defaults over the brokers' settings.
    """

    storage: ClusterStorage
    changes: Mapping[str, object] = field(default_factory=dict)
    decision_state: DecisionState = field(default_factory=DecisionState)

    def judge(self, sample: Sample, *, all_hits: bool = False) -> StoragePath:
        """Return the folder of a run that validates and decides a sample; `all_hits`: as if all hits were reached."""
        resolved = sample.request.resolved
        settings = checked_settings(resolved.settings.model_copy(update=dict(self.changes)), "the brokers' settings")
        params = RunParams(force="if it lasts" if all_hits else "")
        changes = {"resolved": resolved.model_copy(update={"settings": settings}), "params": params}
        folder = self.storage.new_run_folder(sample.request.collected_at)
        before = StateBefore(decision=self.decision_state)
        write_sample(replace(sample, request=sample.request.model_copy(update=changes), state_before=before), folder)
        if not validate_run(RunInput(folder)).reason_counts(Effect.BLOCK):
            decide_run(RunInput.read(folder.uri))
            self.decision_state = self.decision_state if all_hits else read_plan_state(folder)
        blocked = Summary.read_or_none(folder) is None
        conclude_run(folder, None if blocked else Reason.OBSERVE, sample.request.collected_at).write(folder)
        return folder


def decide_run(run: RunInput) -> Summary:
    """Decide a run as the Spark application does, with the means of its bundles computed here."""
    known = run.known_means_file.read_table().to_pylist() if run.known_means_file else []
    left_out = run.validation.quarantine_reasons
    reported = (row for row in run.read_table("bundles").to_pylist() if row["bundle"] not in left_out)
    run.new_means_file.write_table(table(bundle_columns.update_means(reported, known), MEANS))
    lesson = learn_from_run(run)
    lesson.write_costs(run)
    return write_run_plan(run, plan_run(run, RunBundles(run, lambda: run.new_means_file, lesson.bundle_loads), lesson))


@dataclass
class Inspection:
    cluster: str
    runtimes: Runtimes
    sample: Sample
    judge: SampleJudge
    configured_judge: SampleJudge | None
    runs: list[StoragePath]
    lasting_run: StoragePath
    configured_run: StoragePath | None
    all_advice: list[advice.Advice] = field(default_factory=list)
    topic: list[dict[str, str]] = field(default_factory=list)

    def view(self, folder: StoragePath) -> Overview:
        entry = ClusterEntry(name=self.judge.storage.cluster, given={}, settings=self.sample.request.resolved.settings)
        view = run_overview(self.judge.storage, entry, folder, self.sample.request.collected_at)
        assert view is not None
        return view

    def json_document(self) -> dict[str, Any]:
        settings, view = self.sample.request.resolved.settings, self.view(self.runs[-1])
        thresholds = profile_of(settings).thresholds(settings)
        brokers = [
            {"broker": b.name, "score": b.score, "resource": b.deciding, "resources": b.resources, "why": b.left_out}
            for b in view.brokers
        ]
        return {
            "cluster": self.cluster,
            "sampled_at": self.sample.request.collected_at.isoformat(timespec="seconds"),
            "brokers": brokers,
            "shedder": settings.strategy,
            "thresholds": {kind: {"gap": each.gap, "hits": each.hits} for kind, each in thresholds.items()},
            "samples": [self._sample_document(folder) for folder in self.runs],
            "if_it_lasts": plan_document(self.lasting_run),
            "configured": {
                **advice.load_balancer_classes(self.runtimes),
                "if_it_lasts": plan_document(self.configured_run) if self.configured_run else None,
            },
            "findings": [found._asdict() for found in self.all_advice],
            **({"topic": self.topic} if self.topic else {}),
        }

    def html_page(self) -> str:
        """Return the page of the cluster as one file: the latest sample, with the plan if it lasts."""
        now, view, lasting = self.sample.request.collected_at, self.view(self.runs[-1]), self.view(self.lasting_run)
        changes = {"brokers": lasting.brokers, "plan": lasting.plan, "of_one_run": False}
        shown = view.model_copy(update={**changes, "status": view.status.model_copy(update={"cluster": self.cluster})})
        warning: dict[str, JsonValue] = {"effect": "warn", "count": 1}
        findings: list[JsonValue] = [
            {**warning, "meaning": each.what, "worst": [each.evidence], "action": each.fix, "reason": each.reason}
            for each in self.all_advice
        ]
        hour = make_timeline(self.judge.storage, self.sample.request.resolved.settings, now)
        return page_html({**shown.model_dump(mode="json"), "findings": findings}, hour.model_dump(mode="json"))

    def _sample_document(self, folder: StoragePath) -> JsonValue:
        run = read_run(folder)
        pairs = [_pair_document(pair) for pair in pair_views(run) if pair.destination != pair.source] if run else []
        at = run.request.collected_at if run else self.sample.request.collected_at
        return {"at": at.isoformat(timespec="seconds"), "pairs": pairs, "plan": plan_document(folder)}


def _pair_document(pair: PairView) -> JsonValue:
    return pair.model_dump(mode="json", include={"source", "destination", "gap", "band", "hits", "fired", "reason"})


def plan_document(folder: StoragePath) -> dict[str, JsonValue] | None:
    summary = Summary.read_or_none(folder)
    if summary is None:
        return None
    moves = read_moves(folder)
    return {
        "sentence": summary.sentence,
        "bundles": summary.bundles_taken,
        "range": None if summary.score_range is None else round(summary.score_range, 2),
        "predicted_range": None if summary.predicted_range is None else round(summary.predicted_range, 2),
        "moves": [{"bundle": m.bundle, "from": m.source, "to": m.destination} for m in moves[:_MAX_MOVES_LISTED]],
        "stay": {str(reason): count for reason, count in summary.bundle_skip_reasons.items()},
    }


_sleep = asyncio.sleep


def _now() -> datetime:
    return datetime.now(UTC)


async def inspect_cluster(
    admin: PulsarAdmin, folder: str, seconds: float, interval_s: float, topic: str = ""
) -> Inspection:
    given: dict[str, object] = {"interval_seconds": interval_s, "split_mode": "observe"}
    entry = ClusterEntry(name="cluster", given=given, settings=settings_of(given, label="inspect"))
    own = SampleJudge(ClusterStorage(folder, "cluster"))
    name, runtimes = await admin.cluster_name(), await read_runtimes(admin, sorted(set(await admin.brokers())))
    theirs = _configured_judge(folder, runtimes)
    counted: list[StoragePath] = []
    begun = time.monotonic()
    for number in range(1 + int(seconds // interval_s)):
        await _sleep(max(0.0, begun + number * interval_s - time.monotonic()))
        sample = await collect_sample(admin, entry, RunTrigger(now=_now(), airflow_run_id="", requested_by="inspect"))
        counted.append(own.judge(sample))
        if theirs:
            theirs.judge(sample)
    lasting = own.judge(sample, all_hits=True)
    seen = Inspection(
        name, runtimes, sample, own, theirs, counted, lasting, theirs.judge(sample, all_hits=True) if theirs else None
    )
    topics = await advice.read_topics(admin, sample)
    seen.all_advice = advice.all_advice(runtimes, topics, [lasting, *filter(None, [seen.configured_run])])
    if topic:
        parts = [each.name for each in topics.topics if each.name.startswith(f"{topic}-partition-")]
        seen.topic = [await advice.find_topic(admin, each, topics.topics, lasting) for each in sorted(parts) or [topic]]
    return seen


def _configured_judge(folder: str, runtimes: Runtimes) -> SampleJudge | None:
    named = advice.load_balancer_classes(runtimes)
    given = settings_of_classes(named["manager"], named["shedder"], named["placement"])
    return SampleJudge(ClusterStorage(folder, "configured"), given) if given else None


_SERVER_MODULE = "export class Refusal extends Error {}\n" + (
    'const documents = JSON.parse(document.getElementById("documents").textContent);\n'
    "export const ask = async (path) => documents[path.split(/[/?]/).findLast((part) => part in documents)];\n"
)
"""Replacement for `server.js`: it finds the answers in the page's own file."""

_SECURITY_POLICY = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:"


def page_folder() -> Path:
    """Return the folder of the page's files: in the package if the wheel is installed, else in the source tree."""
    packaged = Path(__file__).parents[1] / "page"
    plugin = Path(__file__).parents[3] / "plugins" / "pulsar_rebalancer_airflow"
    return packaged if packaged.is_dir() else plugin / "overview" / "static"


def page_html(overview: JsonValue, timeline: JsonValue) -> str:
    folder = page_folder()
    modules = {file.name: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.js"))}
    modules["server.js"] = _SERVER_MODULE
    # A module in a data: address has no folder, so others are found by their bare names.
    imports = {name: _data_url(re.sub(r'from "\./([\w.]+)"', r'from "\1"', text)) for name, text in modules.items()}
    documents = json.dumps({"overview": overview, "timeline": timeline}).replace("<", "\\u003c")
    head = [
        f'<meta http-equiv="Content-Security-Policy" content="{_SECURITY_POLICY}">',
        f"<style>{(folder / 'page.css').read_text(encoding='utf-8')}</style>",
        f'<script type="application/json" id="documents">{documents}</script>',
        f'<script type="importmap">{json.dumps({"imports": imports})}</script>',
        '<script type="module">import "main.js";</script>',
    ]
    shell = (folder / "page.html").read_text(encoding="utf-8").replace("@BASE@", "")
    # Nothing will change.
    shell = shell.replace("<footer>", "<footer hidden>").replace(" checked>", ">")
    shell = re.sub(r'<link rel="(?:icon|stylesheet)".*>\n', "", shell)
    return re.sub(r'<script type="module".*</script>', lambda _: "\n".join(head), shell, count=1)


def _data_url(script: str) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(script.encode()).decode()}"
