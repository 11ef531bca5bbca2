import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import MemoryState, context
from tests.bad_input import ALL, BLOCKED, COLDEST, COLLECT, HELD, ONE, OTHERS, PROCEEDS, RESTART, ROWS, UNLOAD, Row
from tests.integration.airflow_world import Outcome, World, world
from tests.token_issuer import TokenIssuer, bad_credentials, token_issuer

from pulsar_rebalancer.decide.validation import validate_run
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run.findings import explain_validation
from pulsar_rebalancer.run.outcome import Outcome as Written
from pulsar_rebalancer.run.plan import Summary, read_moves
from pulsar_rebalancer.run.request import Validation
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow import dag_factory

pytestmark = pytest.mark.integration

NEVER = 1_000_000
SETTINGS = {
    "mode": "auto",
    "split_mode": "observe",
    # Hits are counted and nobody fires unless a run is forced; a busy machine may take minutes.
    "hit_count_low": NEVER,
    "hit_count_high": NEVER,
    "interval_seconds": 5,
    "host_usage_interval_minutes": 5 / 60,
    "state_max_gap": NEVER,
    "max_plan_age_seconds": 3600,
    "min_unload_message": 0,
    "min_unload_throughput": 0,
    "move_timeout_seconds": 1,
    "grace_period_minutes": 0,
}
FORCE = {"force": "to show what moves and what does not", "force_threshold": 1}
LIMITS: dict[str, dict[str, Any]] = {
    PROCEEDS: {"mode": "observe"},
    HELD: {"max_bundles_per_run": 1},
    UNLOAD: {"max_bundles_per_run": 1},
}
"""Where the run proceeds, its plan shows what would move, and the brokers stay as they are for the next row."""

TASKS = {
    COLLECT: {"collect": "failed", "validate": "upstream_failed", "record": "upstream_failed"},
    BLOCKED: {"collect": "success", "validate": "failed", "decide": "upstream_failed", "record": "upstream_failed"},
    HELD: {"validate": "success", "decide": "success", "record": "success", "gate": "success", "unload": "skipped"},
    PROCEEDS: {"validate": "success", "decide": "success", "record": "success", "gate": "success", "unload": "skipped"},
    UNLOAD: {"validate": "success", "decide": "success", "record": "success", "gate": "success", "unload": "failed"},
}
VERDICTS = {BLOCKED: "blocked", HELD: "on_hold", PROCEEDS: "observe", UNLOAD: "open"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, one_session: None) -> Iterator[World]:
    with (
        mock.patch.object(dag_factory, "_RETRY_DELAY", timedelta(0)),
        world("bad", tmp_path_factory.mktemp("bad"), **SETTINGS) as made,
    ):
        yield made


def by_score(cluster: World) -> list[str]:
    scores = cluster.served.cluster.true_scores()
    return sorted(scores, key=scores.__getitem__)


def with_hits(cluster: World) -> None:
    """A forced run takes the hits of its pair: they are counted anew, so that a row could lose them."""
    for _ in range(10):
        coldest, *_, hottest = by_score(cluster)
        if {coldest, hottest} <= cluster.decision().hits.keys():
            return
        cluster.run()
    raise RuntimeError("the hottest and the coldest broker collect no hits")


@pytest.fixture(scope="module")
def issuing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenIssuer]:
    with token_issuer(tmp_path_factory.mktemp("issuer")) as found:
        yield found


@contextmanager
def served(cluster: World, issuing: TokenIssuer, row: Row, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The row's faults while it lasts; the broker that they concern, or the hottest one."""
    simulated, (coldest, *middle, hottest) = cluster.served.cluster, by_score(cluster)
    brokers = {ONE: [hottest], COLDEST: [coldest], OTHERS: [coldest, *middle], ALL: [coldest, *middle, hottest]}
    started = {}
    for kind, who, more in row.faults:
        attributes = dict(more)
        if attributes.get("bundle"):
            owners = simulated.state()["owners"]
            attributes["bundle"] = next(b for b, owner in owners.items() if owner not in (None, hottest))
        if attributes.get("target") == "the hottest":
            attributes["target"] = f"http://{hottest}"
        for broker in brokers[who]:
            if kind == RESTART:
                started[broker] = simulated.membership.find(broker).started_at
                simulated.restart(broker)
                # However late its report is read, it has just started.
                simulated.membership.find(broker).started_at += 600
            else:
                simulated.faults.add(kind, broker, **attributes)
    hosts = ",".join(url.removeprefix("http://") for url in cluster.served.urls)
    extra = {name: value for name, value in row.connection.items() if name not in ("token", "credentials")}
    connection: dict[str, Any] = {"conn_type": "pulsar_admin", "host": hosts, "extra": extra}
    if "credentials" in row.connection:
        extra |= bad_credentials(issuing, row.connection["credentials"])
    else:
        connection["password"] = getattr(cluster.served, row.connection.get("token", "token"))
    monkeypatch.setenv("AIRFLOW_CONN_PULSAR_BAD", json.dumps(connection))
    yield coldest if started else hottest
    simulated.faults.clear()
    for broker, at in started.items():
        simulated.membership.find(broker).started_at = at
        simulated.samples.version += 1  # or the report of before would be served until the next sample


@pytest.fixture(scope="module")
def rebalance(cluster: World) -> Any:
    return cluster.dag("pulsar_rebalance__bad")


@pytest.mark.parametrize("row", ROWS, ids=[row.served for row in ROWS])
def test_bad_input(cluster, rebalance, issuing, row, monkeypatch):
    collect = rebalance.task_dict["collect"]
    given: Any = context("bad", MemoryState(), params=rebalance.params.dump() | FORCE)
    with served(cluster, issuing, row, monkeypatch) as concerned:
        if row.ends == COLLECT:
            with pytest.raises((AdminError, AirflowFailException)) as refused:
                collect.execute(given)
        else:
            run = StoragePath(collect.execute(given))

    if row.ends == COLLECT:
        assert given["ti"].pushed["failure"] == row.reason
        assert Reason(row.reason).action in str(refused.value)
    else:
        # As Great Expectations reads the same suites, which takes seconds.
        found_as_told(row, validate_run(Snapshot(run)), concerned)


WHOLE = [
    next(row for row in ROWS if row.served == served)
    for served in (
        "no broker accepts connections",
        "no broker is listed",
        "Pulsar's own shedding is on",
        'CPU usage is "NaN"',
        "307 to a stranger, for an unload",
    )
]
"""One row for each end of a run."""


@pytest.mark.parametrize("row", WHOLE, ids=[row.ends for row in WHOLE])
def test_a_run_ends_with_its_reason(cluster, issuing, row, monkeypatch):
    # In the other rows no hits are compared.
    if row.ends in (COLLECT, BLOCKED) or row.effect == "quarantine":
        with_hits(cluster)
    before, owners = cluster.decision(), cluster.served.cluster.state()["owners"]

    with served(cluster, issuing, row, monkeypatch) as concerned:
        # `run` would pause for a second whenever no task is ready.
        run = cluster.begin(cluster.start("rebalance", **FORCE, **LIMITS.get(row.ends, {})))

    assert run.state == ("success" if row.ends in (PROCEEDS, HELD) else "failed")
    assert {task: run.states[task] for task in TASKS[row.ends]} == TASKS[row.ends]
    assert run.states["report"] == "success"
    assert cluster.served.cluster.state()["owners"] == owners
    if row.ends != COLLECT:
        assert Written.read(run.folder).verdict == VERDICTS[row.ends]
    counted_as_ruled(cluster, row, run, concerned, before)
    if row.ends == PROCEEDS:
        moved_as_ruled(row, run, concerned)


def moved_as_ruled(row: Row, run: Outcome, concerned: str) -> None:
    """Nothing goes from or to a broker that is left out, and no bundle that is; the hottest broker gives all others."""
    moves = read_moves(run.folder)
    assert moves
    if row.effect == "quarantine" and not row.bundle:
        assert concerned not in {broker for move in moves for broker in (move.source, move.destination)}
    else:
        assert concerned in {move.source for move in moves}
    assert Validation.read(run.folder).quarantine_reasons.keys().isdisjoint({move.bundle for move in moves})


def found_as_told(row: Row, validation: Validation, concerned: str) -> None:
    """The findings are the row's, and say what to do."""
    findings = validation.findings
    assert (row.ends == BLOCKED) == any(finding.effect is Effect.BLOCK for finding in findings)
    if row.ends == UNLOAD or not row.reason:
        assert findings == ()
        return
    found = [finding for finding in findings if finding.reason == row.reason]
    (first, *_) = found
    assert {finding.reason for finding in findings} == {row.reason, *row.also} or row.ends == BLOCKED
    assert (first.effect, first.cause) == (row.effect, row.cause)
    assert first.detail.startswith(row.detail)
    if row.effect == "quarantine" and not row.bundle:
        assert [finding.subject for finding in found] == [concerned]
    (told,) = [told for told in explain_validation(validation).reasons if told.reason == row.reason]
    assert (told.effect, told.count) == (row.effect, len(found))
    for code in filter(None, (row.reason, row.cause)):
        assert Reason(code).action in told.action


def counted_as_ruled(cluster: World, row: Row, run: Outcome, concerned: str, before: Any) -> None:
    """Counters change by record alone, and never for a broker that was left out."""
    after = cluster.decision()
    if row.ends in (COLLECT, BLOCKED):
        assert after == before
        return
    assert (after.seq, after.plan_id) == (before.seq + 1, run.folder.name)
    if row.effect == "quarantine" and not row.bundle:
        assert after.hits.get(concerned) == before.hits.get(concerned) is not None
    if row.ends in (HELD, UNLOAD):
        assert Summary.read(run.folder).bundles_taken == 1
    if row.ends == UNLOAD:
        assert Written.read(run.folder).move_counts == {row.reason: 1}
