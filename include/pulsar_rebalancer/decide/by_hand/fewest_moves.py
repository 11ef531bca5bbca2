"""Bring hot brokers down to a bound with the fewest moves, using an exact but limited search.

Choosing bundles from one broker is easy: the largest first. The whole problem is hard (it includes bin packing),
because the bundles must fit into the spare capacity of the other brokers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_MOST_STEPS = 20_000
"""Maximum number of search steps; one step examines 50 destinations."""

_TINY = 1e-9
"""Differences up to this number of points are ignored, because sums of points are rounded."""


class HotBroker(NamedTuple):
    """A broker above the bound.

    Attributes:
        excess: points by which its score must drop.
        bundles: score points and name of each bundle that may be moved, largest first.
    """

    broker: str
    excess: float
    bundles: Sequence[tuple[float, str]]


class FittingMove(NamedTuple):
    """A move that takes no broker above the bound."""

    bundle: str
    source: str
    destination: str


class FewestMoves(NamedTuple):
    """The moves found, at least one from each hot broker that they bring down to the bound.

    Attributes:
        proven: True if it is certain that no plan brings more brokers down to the bound, or the same number with fewer
            moves.
    """

    moves: list[FittingMove]
    proven: bool


class _Node(NamedTuple):
    """A partial plan: the hot broker whose bundles are chosen next, and the choices already made for this broker."""

    hot: int
    start: int  # bundles before this one are decided
    need: float  # points that the broker must still lose
    given_up: int  # brokers that stay above the bound


def fewest_moves(
    hot: Sequence[HotBroker],
    rooms: Mapping[str, float],
    allowed: Callable[[str, str, str], bool],
    fits: Callable[[Sequence[FittingMove]], bool],
) -> FewestMoves:
    """Bring as many hot brokers as possible down to the bound, with as few moves as possible.

    A first plan handles the brokers in turn: it takes the largest bundles that fit, then the smallest bundle that is
    enough, each to the destination with the most spare capacity. A search over all plans then looks for a better plan.
    It skips plans that cannot be better: a broker needs at least as many moves as it would if its largest bundles fit,
    and the sum over all brokers is a lower bound. The result has the fewest moves if it reaches this bound or the
    search ends before its limit. Otherwise `proven` is False, and the result is the best plan that was found, never
    worse than the first.

    Args:
        rooms: points by which the score of each destination may rise.
        allowed: function that returns whether a bundle may be moved from a source to a destination.
        fits: function that returns whether moves may be made together. A combination that is not allowed must not
            become allowed when moves are added.
    """
    search = _Search(hot, rooms, allowed, fits)
    search.make_first_plan()
    return FewestMoves(proven=search.improve(), moves=search.best)


class _Search:
    def __init__(
        self,
        hot: Sequence[HotBroker],
        rooms: Mapping[str, float],
        allowed: Callable[[str, str, str], bool],
        fits: Callable[[Sequence[FittingMove]], bool],
    ) -> None:
        self._hot = sorted(hot, key=lambda each: (each.excess, each.broker))
        self._room = dict(rooms)
        self._allowed, self._fits = allowed, fits
        self._sums = [[0.0, *accumulate(points for points, _ in each.bundles)] for each in self._hot]
        self._moves: list[FittingMove] = []
        self.best: list[FittingMove] = []
        self._value = (len(self._hot), 0)  # brokers that stay above the bound, moves
        self._later = [(0, 0)]  # minimum cost of each broker and those after it
        for number in reversed(range(len(self._hot))):
            least, (given_up, moves) = self._least(number, self._hot[number].excess, 0), self._later[0]
            self._later.insert(0, (given_up + 1, moves) if least is None else (given_up, moves + least))

    def make_first_plan(self) -> None:
        """Make a plan without backtracking. A broker that does not reach the bound keeps its bundles."""
        rooms = dict(self._room)
        given_up = 0
        for number, each in enumerate(self._hot):
            before, made, need, start = dict(self._room), len(self._moves), each.excess, 0
            while need > _TINY:
                index = next(self._picks(number, need, start), None)
                if index is None:
                    self._room, self._moves = before, self._moves[:made]
                    given_up += 1
                    break
                need, start = need - each.bundles[index][0], index + 1
        self._record(given_up)
        self._room, self._moves = rooms, []

    def improve(self) -> bool:
        """Search all plans for a better plan; return whether the search ended before its limit."""
        left, cost = _MOST_STEPS, 1 + len(self._room) // 50
        stack = [iter([_Node(0, 0, self._hot[0].excess, 0)])] if self._hot and self._value > self._later[0] else []
        while stack:
            node = next(stack[-1], None)
            if node is None:
                stack.pop()
            elif node.hot == len(self._hot):
                self._record(node.given_up)
            elif left <= 0:
                return False
            else:
                left -= cost
                stack.append(self._children(node))
        return True

    def _record(self, given_up: int) -> None:
        if (given_up, len(self._moves)) < self._value:
            self._value, self.best = (given_up, len(self._moves)), list(self._moves)

    def _children(self, node: _Node) -> Iterator[_Node]:
        each = self._hot[node.hot]

        def better(index: int) -> bool:
            least = self._least(node.hot, node.need, index)
            return least is not None and self._least_value(node, node.given_up, least) < self._value

        for index in self._picks(node.hot, node.need, node.start, better):
            need = node.need - each.bundles[index][0]
            yield self._next(node, node.given_up) if need <= _TINY else node._replace(start=index + 1, need=need)
        if node.start == 0 and self._least_value(node, node.given_up + 1, 0) < self._value:
            yield self._next(node, node.given_up + 1)

    def _next(self, node: _Node, given_up: int) -> _Node:
        number = node.hot + 1
        return _Node(number, 0, self._hot[number].excess if number < len(self._hot) else 0.0, given_up)

    def _least(self, number: int, need: float, start: int) -> int | None:
        """Return how many bundles, from index `start` on, are needed to reach the bound; None if all are too few."""
        sums = self._sums[number]
        end = bisect_left(sums, sums[start] + need - _TINY, lo=start)
        return end - start if end < len(sums) else None

    def _least_value(self, node: _Node, given_up: int, more: int) -> tuple[int, int]:
        later = self._later[node.hot + 1]
        return given_up + later[0], len(self._moves) + more + later[1]

    def _picks(
        self, number: int, need: float, start: int, better: Callable[[int], bool] = lambda _: True
    ) -> Iterator[int]:
        """Yield the index of each bundle that could be moved next, once per destination.

        The plan includes the bundle's move until the next index is requested.
        """
        each = self._hot[number]
        enough = bisect_right(each.bundles, _TINY - need, lo=start, key=lambda bundle: -bundle[0])
        destinations = sorted(self._room, key=lambda name: (-self._room[name], name))
        for index in (*range(enough - 1, start - 1, -1), *range(enough, len(each.bundles))):
            points, bundle = each.bundles[index]
            if not better(index):
                continue
            for destination in destinations:
                if points > self._room[destination]:
                    break
                if not self._allowed(bundle, each.broker, destination):
                    continue
                self._moves.append(FittingMove(bundle, each.broker, destination))
                if self._fits(self._moves):
                    self._room[destination] -= points
                    yield index
                    self._room[destination] += points
                self._moves.pop()
