"""What moves cost their clients, as figures and in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from pulsar_rebalancer.run import harm as module
from pulsar_rebalancer.run.harm import BundleHarm, Harm, HarmSummary, last_time
from pulsar_rebalancer.storage.path import StoragePath

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
NOBODY, UNKNOWN = Harm(clients_before=0, topics=0), Harm(owner_seconds=0.1, unknown="b:1 did not answer")
MISSING = Harm(clients_before=5, clients_back=3, watched_seconds=15.04, topics=300, topics_measured=10, errors=1)


def back(seconds: float) -> Harm:
    return Harm(clients_before=2, clients_back=2, clients_seconds=seconds, watched_seconds=seconds, errors=0)


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (back(3.14), "clients were away for 3.1 s"),
        (MISSING, "2 of 5 clients not back after 15.0 s (10 of 300 topics); 1 topic returned an error"),
        (NOBODY, "no client was connected"),
        (UNKNOWN, "harm unknown: b:1 did not answer"),
        (Harm(), "harm unknown"),
    ],
)
def test_a_move_says_what_it_cost(harm: Harm, text: str) -> None:
    assert harm.text == text


def test_several_moves_are_summed_up() -> None:
    seconds = [float(number) for number in range(1, 21)]
    found = HarmSummary.of([*map(back, reversed(seconds)), NOBODY, MISSING, UNKNOWN, None])

    assert found == HarmSummary(
        moves=24, unknown=2, not_back=1, median_seconds=10.5, p95_seconds=19, longest_seconds=20, errors=1
    )
    assert found.sentence == (
        "clients were back after 10.5 s in the median, 20.0 s at most; after 1 of 24 moves some clients were not back; "
        "2 of 24 moves could not be measured; 1 topic returned an error"
    )


def test_what_is_unknown_is_not_0() -> None:
    unknown, nobody = HarmSummary.of([UNKNOWN, None]), HarmSummary.of([NOBODY])

    assert unknown is not None
    assert nobody is not None
    assert (unknown.median_seconds, unknown.longest_seconds, unknown.unknown) == (None, None, 2)
    assert unknown.sentence == "2 of 2 moves could not be measured"
    assert nobody.sentence == "no client was connected"
    assert HarmSummary.of([]) is None


def test_the_newest_known_figures_of_each_bundle_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 3)
    folder = StoragePath(str(tmp_path))
    assert BundleHarm.last(folder, ["a"]) == {}

    first = BundleHarm().added({"a": back(1), "b": back(2), "c": UNKNOWN, "d": None}, NOW)
    second = first.added({"a": UNKNOWN, "b": back(3), "e": MISSING, "f": NOBODY}, NOW + timedelta(minutes=1))
    second.write(folder)

    assert first.bundles.keys() == {"a", "b"}
    assert BundleHarm.last(folder, "abcdef") == {"b": back(3), "e": MISSING, "f": NOBODY}
    assert last_time([back(3), MISSING], 4).endswith("(known of 2 of 4 bundles)")
    assert last_time([], 4) == "not known: no move of these bundles was measured"
    (folder / BundleHarm.FILE).write_json({"version": 99})
    assert BundleHarm.last(folder, ["b"]) == {}
