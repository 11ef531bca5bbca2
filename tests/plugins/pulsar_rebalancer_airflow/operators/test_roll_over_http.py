"""A roll of one broker over HTTP, minute by minute: bundles that go astray, a cap, and load that reports show late."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr
from tests.plugins.pulsar_rebalancer_airflow.embedded.test_demonstrations import Demonstration, decided

from pulsar_rebalancer.carry_out.move_executor import carry_out_moves
from pulsar_rebalancer.carry_out.move_history import WaveHistory, tidied
from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide import roll_plan
from pulsar_rebalancer.decide.rolling import RollFacts, advance
from pulsar_rebalancer.orders.manual_plans import Drains
from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer.pulsar import AdminConnection, PulsarAdmin
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import conclude
from pulsar_rebalancer.run.plan import read_moves, read_state
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_simulator.load import QUIET
from pulsar_simulator.scenario import build
from pulsar_simulator.serve import running

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pulsar_rebalancer.decide.run_input import RunInput
    from pulsar_rebalancer.state.state_documents import MovesState
    from pulsar_simulator.cluster import Cluster

# The strategy waits: whatever moves belongs to the roll.
SETTINGS: dict[str, Any] = {
    "mode": "auto",
    "hit_count_low": 1000,
    "hit_count_high": 1000,
    "overloaded_threshold": 100,
    "roll_wait_minutes": 9,
}


class Rolled:
    """A roll, and the cluster whose brokers it restarts."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.cluster: Cluster = build(brokers=4, bundles=60, noise=QUIET)
        given = SETTINGS | settings
        self.settings = Settings.model_validate(given)
        entry = ClusterEntry(name="east", given=given, settings=self.settings)
        self.scene = Demonstration(self.cluster, entry)
        self.storage = ClusterStorage(str(folder), "east")
        self.before, self.roll = StateBefore(), Roll()
        self.moved: dict[str, int] = {}

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.cluster.clock.now(), UTC)

    async def run(self, admin: PulsarAdmin) -> RunInput:
        """A run, a minute after the last one."""
        self.cluster.advance(60)
        active = self.roll if self.roll.active else None
        before = self.before.model_copy(update={"roll": active, "drains": Drains(brokers=self.roll.drains())})
        run = await decided(self.scene, self.storage, admin, before)
        moves = read_moves(run.folder)
        self.before = StateBefore(decision=read_state(run.folder), moves=before.moves)
        if moves:
            history = WaveHistory(before.moves, self._store, run.folder, 0)
            history.plan(moves, self.now)
            await carry_out_moves(
                admin.bundles,
                moves,
                concurrency=4,
                retries=0,
                timeout_seconds=30,
                on_outcome=lambda outcome: history.add(outcome, self.now),
                begin=history.begin,
            )
            history.write()
        outcome = conclude(run.folder, Reason.OPEN, self.now)
        for move in outcome.moves:
            self.moved[move.bundle] = self.moved.get(move.bundle, 0) + 1
        self._store(lambda stored: tidied(stored, outcome, self.now, self.settings.grace_period_minutes))
        return run

    def _store(self, change: Callable[[MovesState], MovesState]) -> None:
        self.before = self.before.model_copy(update={"moves": change(self.before.moves)})

    def step(self, run: RunInput) -> None:
        seen = roll_plan.seen(run, self.roll, ())
        self.roll = advance(self.roll, RollFacts(now=self.now, minutes=self.settings.roll_wait_minutes, seen=seen))


@pytest.mark.parametrize("cap", [None, 2])
def test_all_bundles_return_but_for_one_that_always_goes_astray(tmp_path: Path, cap: int | None) -> None:
    rolled = Rolled(tmp_path, max_bundles_per_run=cap)
    cluster = rolled.cluster

    async def roll() -> None:
        with running(cluster) as served:
            connection = AdminConnection(seeds=(served.urls[0],), token=SecretStr(served.token))
            async with PulsarAdmin(connection) as admin:
                runs = [await rolled.run(admin) for _ in range(2)]
                broker = max(cluster.active_brokers(), key=cluster.true_scores().__getitem__)
                shown = roll_plan.shown(runs[-1], [broker], "ada", "patch")
                listed = tuple(each.broker for each in runs[-1].brokers)
                rolled.roll = Roll().begun(shown, "manual__1", listed, rolled.now, "bob", runs[-1].folder.name)
                while rolled.roll.phase is not Phase.RESTARTING:
                    rolled.step(await rolled.run(admin))
                home = set(rolled.moved)
                cluster.restart(broker)
                once, ever = sorted(home)[:2]
                cluster.faults.add("stray", bundle=once, times=1)
                cluster.faults.add("stray", bundle=ever)
                while rolled.roll.active:
                    rolled.step(await rolled.run(admin))
        assert {bundle for bundle in home if cluster.owner(bundle) != broker} == {ever}
        assert rolled.roll.elsewhere == {broker: "astray x1"}
        assert rolled.moved == dict.fromkeys(home, 2) | {once: 3, ever: 4}

    asyncio.run(roll())
