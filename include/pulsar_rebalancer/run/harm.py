"""The cost of moves for clients: the figures for one move, for a whole run, and for each bundle's last move."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict

from pulsar_rebalancer.storage.documents import VersionedDocument
from pulsar_rebalancer.storage.layout import BUNDLE_HARM
from pulsar_rebalancer.texts import number_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from pulsar_rebalancer.storage.path import StoragePath

KEPT = 2000
"""Maximum number of bundles whose last figures are stored: about half a megabyte, which every manual plan reads."""


class Harm(BaseModel):
    """The cost of one move for its clients, as reported by the brokers. A figure that was not reported is None, not 0.

    Clients are the producers and consumers that are connected to a sample of the bundle's topics.

    Attributes:
        owner_seconds: seconds from the unload until a broker confirmed that it owns the bundle; None if no broker
            confirmed it.
        clients_seconds: seconds from the unload until all clients were connected again; None if unknown, or if some
            were missing at the last count.
        watched_seconds: seconds from the unload to the last count; None if there was none.
        clients_before: number of clients before the unload.
        clients_back: how many of these clients were connected at the last count.
        topics: how many of the bundle's topics had clients.
        topics_measured: number of topics in the sample.
        errors: number of topics in the sample that returned an error at the last count.
        unknown: why the clients could not be counted; empty if they were counted.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    owner_seconds: float | None = None
    clients_seconds: float | None = None
    watched_seconds: float | None = None
    clients_before: int | None = None
    clients_back: int | None = None
    topics: int | None = None
    topics_measured: int = 0
    errors: int | None = None
    unknown: str = ""

    @property
    def text(self) -> str:
        """Return the figures as part of a sentence."""
        if self.unknown:
            return f"harm unknown: {self.unknown}"
        if not self.clients_before:
            return "no client was connected" if self.clients_before == 0 else "harm unknown"
        if self.clients_seconds is not None:
            said = f"clients were away for {self.clients_seconds:.1f} s"
        else:
            missing, clients = self.clients_before - (self.clients_back or 0), number_of(self.clients_before, "client")
            said = f"{missing} of {clients} not back after {self.watched_seconds:.1f} s"
        sampled = self.topics is not None and self.topics_measured < self.topics
        said += f" ({self.topics_measured} of {self.topics} topics)" if sampled else ""
        return said + (f"; {number_of(self.errors, 'topic')} returned an error" if self.errors else "")


class HarmSummary(BaseModel):
    """The cost of several moves for their clients.

    Attributes:
        moves: number of moves that unloaded their bundle.
        unknown: number of moves whose clients could not be counted.
        not_back: number of moves after which some clients were missing at the last count.
        median_seconds, p95_seconds, longest_seconds: statistics of `Harm.clients_seconds`; None if no client was
            connected before, or none reconnected.
        errors: number of topics that returned an error afterwards.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    moves: int
    unknown: int
    not_back: int
    median_seconds: float | None
    p95_seconds: float | None
    longest_seconds: float | None
    errors: int

    @classmethod
    def of(cls, harms: Iterable[Harm | None]) -> Self | None:
        """Return the summary of moves that unloaded their bundle; None if there are none.

        Args:
            harms: the cost of each such move; None if it was not measured.
        """
        moves = list(harms)
        known = [harm for harm in moves if harm is not None and not harm.unknown]
        seconds = sorted(
            harm.clients_seconds for harm in known if harm.clients_before and harm.clients_seconds is not None
        )
        if not moves:
            return None
        return cls(
            moves=len(moves),
            unknown=len(moves) - len(known),
            not_back=sum(bool(harm.clients_before) and harm.clients_seconds is None for harm in known),
            median_seconds=round(statistics.median(seconds), 3) if seconds else None,
            p95_seconds=seconds[math.ceil(0.95 * len(seconds)) - 1] if seconds else None,
            longest_seconds=seconds[-1] if seconds else None,
            errors=sum(harm.errors or 0 for harm in known),
        )

    @property
    def sentence(self) -> str:
        """Return the figures as a sentence without a full stop."""
        parts = []
        if self.longest_seconds is not None:
            median, longest = f"{self.median_seconds:.1f} s in the median", f"{self.longest_seconds:.1f} s at most"
            parts.append(f"clients were back after {median}, {longest}")
        if self.not_back:
            parts.append(f"after {self.not_back} of {number_of(self.moves, 'move')} some clients were not back")
        if self.unknown:
            parts.append(f"{self.unknown} of {number_of(self.moves, 'move')} could not be measured")
        if self.errors:
            parts.append(f"{number_of(self.errors, 'topic')} returned an error")
        return "; ".join(parts) or "no client was connected"


def last_time(harms: Collection[Harm], moves: int) -> str:
    """Return a sentence, without a full stop, that says what the last moves of a plan's bundles cost.

    Args:
        harms: the known figures of the bundles' last moves.
        moves: number of planned moves.
    """
    summary = HarmSummary.of(harms)
    if summary is None:
        return "not known: no move of these bundles was measured"
    return f"{summary.sentence}" + (
        f" (known of {len(harms)} of {number_of(moves, 'bundle')})" if len(harms) < moves else ""
    )


class LastHarm(BaseModel):
    """The cost of a bundle's last measured move for its clients, and the time at which the move's run ended."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: AwareDatetime
    harm: Harm


class BundleHarm(VersionedDocument):
    """`state/bundle-harm.json`: the cost of each bundle's last measured move. Only the *report* task writes it."""

    FILE: ClassVar[str] = BUNDLE_HARM

    bundles: dict[str, LastHarm] = {}

    def added(self, harms: Mapping[str, Harm | None], now: datetime) -> Self:
        """Return a copy with the cost of further moves. Unknown figures are ignored; the oldest figures are dropped."""
        known = {b: LastHarm(at=now, harm=harm) for b, harm in harms.items() if harm is not None and not harm.unknown}
        every = self.bundles | known
        newest = sorted(every, key=lambda bundle: (every[bundle].at, bundle))[-KEPT:]
        return self.model_copy(update={"bundles": {bundle: every[bundle] for bundle in sorted(newest)}})

    @classmethod
    def last(cls, folder: StoragePath, bundles: Iterable[str]) -> dict[str, Harm]:
        """Return the cost of these bundles' last moves, by bundle; bundles without a known figure are not included."""
        known = cls.known(folder) or cls()
        return {bundle: known.bundles[bundle].harm for bundle in bundles if bundle in known.bundles}
