"""Columns give strategies the same as the tables of a run do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.vectors import rows as vectors

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.columns import FIGURES, NOBODY, UNKNOWN_RATE, ColumnBundles, MeanColumns, Roster
from pulsar_rebalancer.replay.learned_columns import LearnedColumns
from pulsar_rebalancer.run.bundle_columns import COLUMNS, Bundles
from pulsar_rebalancer.run.tables import TRAFFIC
from pulsar_rebalancer.state.learned import Learned
from pulsar_rebalancer.strategies.means import update

NAMES = sorted(f"{'pulsar/h:1' if i > 9 else 't/ab'[: 3 + i // 6]}/0x{i:08x}_0x{i + 1:08x}" for i in range(12))
BROKERS = ["b1:8080", "b2:8080", "b3:8080"]


def test_means_are_those_of_the_package() -> None:
    random = np.random.default_rng(1)
    columns, rows = MeanColumns(len(NAMES)), list[dict[str, Any]]()
    for step in range(1100):
        sample = random.uniform(0, 1000, (4, len(NAMES)))
        present = random.random(len(NAMES)) > (0.2 if step < 30 else 0)
        columns.update(present, sample)
        seen = [
            {"cluster": "c", "bundle": name} | {figure: sample[row, i] for row, figure in enumerate(TRAFFIC)}
            for i, name in enumerate(NAMES)
            if present[i]
        ]
        rows = update(seen, rows)
        if step in (0, 5, 29, 1099):
            by_name = {row["bundle"]: row for row in rows}
            assert {NAMES[i] for i in np.flatnonzero(present)} == set(by_name)
            for i in np.flatnonzero(present):
                row = by_name[NAMES[i]]
                assert columns.short[:, i] == pytest.approx([row[figure] for figure in TRAFFIC])
                assert columns.long_term_msg_rate[i] == pytest.approx(row["long_term_msg_rate"])
            assert (columns.long_term_msg_rate[~present] == UNKNOWN_RATE).all()


def test_figures_that_do_not_count_leave_means_as_they_are() -> None:
    columns, everyone = MeanColumns(3), np.ones(3, dtype=bool)
    for figure in (10.0, 30.0):
        columns.update(everyone, np.full((4, 3), figure))
    columns.update(everyone, np.full((4, 3), 1e9), np.array([0, 1, 2]))
    assert columns.short[0].tolist() == [20, 20, 20]
    assert columns.long_term_msg_rate.tolist() == [40, 40, 40]
    columns.update(everyone, np.full((4, 3), 80.0), np.array([2]))
    assert columns.short[0].tolist() == [40, 40, 20]
    assert columns.long_term_msg_rate.tolist() == [80, 80, 40]
    columns.update(np.array([True, True, False]), np.full((4, 3), 80.0))
    assert columns.short[0].tolist() == [50, 50, 0]
    assert columns.long_term_msg_rate[2] == UNKNOWN_RATE


def test_bundles_are_those_of_the_tables() -> None:
    random = np.random.default_rng(2)
    owner = random.integers(-1, 3, len(NAMES))
    present, means = random.integers(0, 1000, (len(FIGURES), len(NAMES))).astype(float), MeanColumns(len(NAMES))
    means.update(owner != NOBODY, present)
    means.update(owner != NOBODY, present / 2)
    reasons = {3: Reason.RECENTLY_UNLOADED}
    kinds = {"t/a": "isolation"}
    owner[:5] = 0, 0, 1, 2, NOBODY
    now, later = random.uniform(0, 10, (2, len(NAMES)))
    # The largest loads: one only later, one of a bundle that must stay, one that no broker reports.
    later[0], now[3], now[4] = 30, 20, 40
    columns = ColumnBundles(Roster(BROKERS, NAMES), owner, present, means, reasons, kinds.get, (now, later))
    rows: list[dict[str, Any]] = [
        dict.fromkeys(COLUMNS.names)
        | {"broker": BROKERS[owner[i]], "bundle": name, "policy": kinds.get(namespace_of(name))}
        | {figure: present[row, i] for row, figure in enumerate(FIGURES)}
        | {
            "msg_rate": means.short[0, i] + means.short[1, i],
            "msg_throughput": means.short[2, i] + means.short[3, i],
            "long_term_msg_rate": means.long_term_msg_rate[i],
            "load_now": now[i],
            "load_later": later[i],
            "reason": reasons.get(i),
        }
        for i, name in enumerate(NAMES)
        if owner[i] != NOBODY
    ]
    tables = Bundles(pa.Table.from_pylist(rows, COLUMNS))
    for broker in [*BROKERS, "elsewhere:8080"]:
        assert columns.of(broker) == tables.of(broker)
        assert columns.of(broker, 2) == tables.of(broker, 2)
    assert NAMES[3] not in [bundle.bundle for bundle in tables.of(BROKERS[2], 2)]
    for namespaces in (None, {"t/a"}, {"t/a", "t/ab"}, {"t/x"}):
        assert columns.served(namespaces) == tables.served(namespaces)
    for least, able in ((0, set(BROKERS)), (15, {BROKERS[0]}), (35, set())):
        assert columns.able(least) == tables.able(least) == able
    assert columns.long_term_msg_rates() == pytest.approx(tables.long_term_msg_rates())
    for row in rows:
        assert columns.find(row["broker"], row["bundle"]) == tables.find(row["broker"], row["bundle"])
        with pytest.raises(KeyError):
            columns.find(next(name for name in BROKERS if name != row["broker"]), row["bundle"])


def test_a_sample_that_does_not_count_is_learned_from_only_while_nothing_is_known() -> None:
    columns, owner = LearnedColumns(Roster(BROKERS, NAMES)), np.arange(len(NAMES)) % len(BROKERS)
    load = np.full((len(FIGURES), len(NAMES)), 100.0)
    busy = vectors.brokers_of([vectors.broker(name, 60.0) for name in BROKERS])
    given: Any = {"brokers": busy, "moved": [], "settings": Settings()}
    first, again = (columns.lesson(Learned(), owner, load, **given, minute=1, counts=False) for _ in range(2))
    assert first == again
    # Twelve bundles of 200 msg/s bring three brokers from the idle score, 5, to 60.
    assert first.learned.points == pytest.approx(3 * 55 / (12 * 200))
    known = columns.lesson(Learned(), owner, load, **given, minute=2, counts=True).learned
    assert columns.lesson(known, owner, 2 * load, **given, minute=3, counts=False).learned == known
