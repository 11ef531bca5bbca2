"""All that the page of a cluster shows, from its files."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.overview.brokers import broker_views, lines
from pulsar_rebalancer.overview.in_force import in_force
from pulsar_rebalancer.overview.model import AirflowFacts, FindingView, Overview, Status
from pulsar_rebalancer.overview.pairs import pair_views, told
from pulsar_rebalancer.overview.plan import plan_view, predicted
from pulsar_rebalancer.overview.runs import deviation, folders, known_scores, newest, read_run, spread
from pulsar_rebalancer.overview.status import now_of, of_run
from pulsar_rebalancer.run.explanation import explain
from pulsar_rebalancer.run.outcome import Outcome

if TYPE_CHECKING:
    from datetime import datetime

    from pulsar_rebalancer.config.clusters_file import ClusterEntry
    from pulsar_rebalancer.overview.model import PlanView
    from pulsar_rebalancer.overview.runs import Run
    from pulsar_rebalancer.overview.status import Said
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath

_LOOKED_BACK = 240
"""Runs among which the last one that moved something is looked for."""


def status(storage: ClusterStorage, entry: ClusterEntry, facts: AirflowFacts, now: datetime) -> Status:
    """Return the strip of a cluster as it is now.

    Args:
        storage: of the cluster.
        entry: of the clusters file as it is now.
        facts: what Airflow knows.
        now: the present.

    Raises:
        SnapshotError: `storage_failed`.
    """
    begun, ended = newest(storage, now)
    pairs = pair_views(ended, now) if ended else []
    return _status(
        storage, entry, facts, begun, _shown(begun, ended), now_of(entry, facts, begun, ended, pairs, now), now
    )


def present(storage: ClusterStorage, entry: ClusterEntry, facts: AirflowFacts, now: datetime) -> Overview:
    """Return a cluster as it is now; arguments and errors as `status`."""
    begun, ended = newest(storage, now)
    shown = _shown(begun, ended)
    pairs = pair_views(ended, now) if ended else []
    said = now_of(entry, facts, begun, ended, pairs, now)
    strip = _status(storage, entry, facts, begun, shown, said, now)
    if shown is None:
        return Overview(status=strip)
    found = _of(storage, shown, strip, now)
    last = None if found.plan else _last_that_moved(storage, shown, now)
    return found.model_copy(update={"last": last})


def _shown(begun: Run | None, ended: Run | None) -> Run | None:
    """Return the run to show: the one that is moving bundles, else the newest that has come to its end."""
    return begun if begun is not None and begun.under_way else ended or begun


def of_one_run(storage: ClusterStorage, entry: ClusterEntry, folder: StoragePath, now: datetime) -> Overview | None:
    """Return a cluster as one run saw it; None when that run left no request.

    Args:
        storage: of the cluster.
        entry: of the clusters file as it is now.
        folder: the run's folder.
        now: the present.
    """
    run = read_run(folder)
    if run is None:
        return None
    settings, at = run.request.resolved.settings, run.request.collected_at
    said = of_run(run, pair_views(run, at), settings.mode)
    strip = _status(storage, entry, AirflowFacts(), run, run, said, now).model_copy(
        update={
            "mode": settings.mode,
            "strategy": settings.strategy,
            "in_force": run.request.in_force if run.request.closed else "",
        }
    )
    found = _of(storage, run, strip, now)
    return found.model_copy(update={"of_one_run": True, "pairs": told(pair_views(run, at))})


def _status(
    storage: ClusterStorage,
    entry: ClusterEntry,
    facts: AirflowFacts,
    begun: Run | None,
    shown: Run | None,
    said: Said,
    now: datetime,
) -> Status:
    scores = known_scores(shown.folder) if shown else {}
    return Status(
        cluster=entry.name,
        mode=entry.settings.mode,
        strategy=entry.settings.strategy,
        state=said.state,
        tone=said.state.tone,
        sentence=said.sentence,
        in_force=in_force(storage, entry, facts.control, now),
        now=now,
        collected_at=begun.request.collected_at if begun else None,
        interval_seconds=entry.settings.interval_seconds,
        next_run_at=None if facts.paused else facts.next_run_at,
        score_range=_rounded(spread(scores)),
        deviation=_rounded(deviation(scores)),
        score_min=_rounded(min(scores.values(), default=None)),
        score_max=_rounded(max(scores.values(), default=None)),
    )


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else round(figure, 2)


def _of(storage: ClusterStorage, run: Run, strip: Status, now: datetime) -> Overview:
    scores = known_scores(run.folder)
    mean = math.fsum(scores.values()) / len(scores) if scores else None
    pairs = pair_views(run, now)
    shown = told(pairs)
    return Overview(
        run_id=run.request.airflow_run_id,
        folder=run.folder.name,
        status=strip,
        middle=_rounded(mean),
        lines=lines(run.request.resolved.settings, mean),
        brokers=tuple(broker_views(storage, run, predicted(run), pairs)),
        pairs=tuple(shown),
        close_pairs=len(pairs) - len(shown),
        plan=_plan(storage, run, now),
        findings=_findings(run),
        validated=run.validation is not None,
    )


def _plan(storage: ClusterStorage, run: Run, now: datetime) -> PlanView | None:
    if run.summary is None or not (run.summary.bundles_taken or run.summary.bundles_passed_over):
        return None
    return plan_view(storage, run, run.summary, now)


def _last_that_moved(storage: ClusterStorage, shown: Run, now: datetime) -> PlanView | None:
    for looked_at, folder in enumerate(folders(storage, shown.request.collected_at)):
        if looked_at == _LOOKED_BACK:
            break
        try:
            moved = bool(Outcome.read(folder).moves)
        except SnapshotError:
            continue
        run = read_run(folder) if moved else None
        if run is not None and run.summary is not None:
            return plan_view(storage, run, run.summary, now)
    return None


def _findings(run: Run) -> tuple[FindingView, ...]:
    if run.validation is None:
        return ()
    return tuple(
        FindingView(
            reason=told.reason,
            effect=told.effect,
            count=told.count,
            worst=told.worst,
            meaning=told.meaning,
            action=told.action,
        )
        for told in explain(run.validation).reasons
    )
