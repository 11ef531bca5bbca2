"""The file of a wave names each bundle before its unload, and its writing holds up no other bundle."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import TYPE_CHECKING, Any

from tests.airflow_runs import make_run, move_row

from pulsar_rebalancer.carry_out import move_history as module
from pulsar_rebalancer.carry_out.move_history import WaveHistory
from pulsar_rebalancer.run import attempts
from pulsar_rebalancer.run.outcome import read_waves
from pulsar_rebalancer.run.plan import read_moves
from pulsar_rebalancer.state.state_documents import MovesState
from pulsar_rebalancer.storage.layout import ClusterStorage

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_bundles_that_begin_while_the_file_is_written_share_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(ClusterStorage(str(tmp_path), "east"), [move_row(number, "a:1", "b:1") for number in range(4)])
    moves = read_moves(run)
    history = WaveHistory(MovesState(), lambda _: None, run, 0)
    writing, others_wait, real = Event(), Event(), attempts.write_outcomes
    written: list[int] = []

    def write_outcomes(file: Any, outcomes: Any) -> None:
        writing.set()
        assert others_wait.wait(10)
        written.append(len(outcomes))
        real(file, outcomes)

    async def begin() -> None:
        first = asyncio.create_task(history.begin(moves[0]))
        assert await asyncio.to_thread(writing.wait, 10)
        others = [asyncio.create_task(history.begin(move)) for move in moves[1:]]
        await asyncio.sleep(0)
        others_wait.set()
        await asyncio.gather(first, *others)

    monkeypatch.setattr(module, "write_outcomes", write_outcomes)
    asyncio.run(begin())

    assert written == [1, 4]
    assert {bundle: outcome.attempts for bundle, outcome in read_waves(run).items()} == {m.bundle: 1 for m in moves}
