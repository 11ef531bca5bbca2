"""Hot brokers are brought to a bound with the fewest moves: as every possible plan confirms on small clusters."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_rebalancer.decide.by_hand import fewest_moves as module
from pulsar_rebalancer.decide.by_hand.fewest_moves import FewestMoves, FittingMove, HotBroker, fewest_moves

if TYPE_CHECKING:
    import pytest

Case = tuple[list[HotBroker], dict[str, float], set[tuple[str, str]], int]


@st.composite
def cases(draw: Any) -> Case:
    """One or two hot brokers, destinations with room, forbidden pairs of bundle and destination, a cap."""
    points = st.integers(1, 12)
    hot = []
    for name in ("h", "i")[: draw(st.integers(1, 2))]:
        sizes = sorted(draw(st.lists(points, min_size=1, max_size=3)), reverse=True)
        bundles = [(float(size), f"{name}{number}") for number, size in enumerate(sizes)]
        hot.append(HotBroker(name, float(draw(points)), sorted(bundles, reverse=True)))
    rooms = {name: float(draw(st.integers(0, 15))) for name in ("a", "b", "c")[: draw(st.integers(1, 3))]}
    pairs = [(bundle, room) for each in hot for _, bundle in each.bundles for room in rooms]
    return hot, rooms, draw(st.sets(st.sampled_from(pairs), max_size=3)), draw(st.integers(1, 6))


def solved(case: Case) -> FewestMoves:
    hot, rooms, forbidden, cap = case
    return fewest_moves(hot, rooms, lambda b, _, d: (b, d) not in forbidden, lambda moves: len(moves) <= cap)


def value(case: Case, moves: list[FittingMove]) -> tuple[int, int] | None:
    """How many brokers stay above the bound, and the number of moves; None if the moves are not allowed."""
    hot, rooms, forbidden, cap = case
    points = {bundle: size for each in hot for size, bundle in each.bundles}
    gained = {room: sum(points[move.bundle] for move in moves if move.destination == room) for room in rooms}
    if len(moves) > cap or any(gained[room] > rooms[room] for room in rooms):
        return None
    if any((move.bundle, move.destination) in forbidden for move in moves):
        return None
    lost = {each.broker: sum(points[move.bundle] for move in moves if move.source == each.broker) for each in hot}
    return sum(lost[each.broker] < each.excess for each in hot), len(moves)


def every_plan(case: Case) -> Any:
    hot, rooms, *_ = case
    held = [(each.broker, bundle) for each in hot for _, bundle in each.bundles]
    ends = [[None, *(FittingMove(bundle, broker, room) for room in rooms)] for broker, bundle in held]
    for chosen in itertools.product(*ends):
        yield [move for move in chosen if move is not None]


@settings(deadline=None)
@given(cases())
def test_no_plan_is_better(case: Case) -> None:
    found = solved(case)
    values = (value(case, plan) for plan in every_plan(case))
    assert value(case, found.moves) == min(each for each in values if each is not None)
    assert found.proven


def test_the_last_bundle_of_a_broker_is_the_smallest_that_suffices() -> None:
    hot = [HotBroker("h", 12.0, [(10.0, "x"), (9.0, "y"), (3.0, "z"), (1.0, "w")])]
    found = fewest_moves(hot, {"a": 50.0}, lambda *_: True, lambda _: True)
    assert [move.bundle for move in found.moves] == ["x", "z"]


def packing() -> Case:
    """Five bundles of h that fill two brokers exactly, but not if each goes to the destination with the most room."""
    bundles = [(5.0, "v"), (3.0, "w"), (3.0, "x"), (3.0, "y"), (3.0, "z")]
    return [HotBroker("h", 17.0, bundles)], {"a": 8.0, "b": 9.0}, set(), 100


def test_a_search_that_reaches_its_limit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found = solved(packing())
    assert (found.proven, value(packing(), found.moves)) == (True, (0, 5))
    monkeypatch.setattr(module, "_MOST_STEPS", 3)
    assert solved(packing()) == FewestMoves([], proven=False)
