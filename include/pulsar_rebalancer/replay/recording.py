"""The files of a recording: what brokers and bundles carried in each sample, and what part of a stretch they are."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np
from pydantic import AwareDatetime, BaseModel, ConfigDict

from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.storage.documents import VersionedDocument

if TYPE_CHECKING:
    from datetime import datetime

    from pulsar_rebalancer.replay.columns import Flags, Floats, Ints

MINUTES_OF_A_DAY = 1440


class KeptSample(NamedTuple):
    """One sample as it is kept; brokers and bundles by their numbers in `Index`.

    Attributes:
        brokers: those that the cluster lists.
        usage: a row for each of `RESOURCES`, NaN where nothing was measured.
        limits: likewise.
        traffic: a row for each of `FIGURES`.
        averages: brokers' own, of their load (1 is 100 percent) and their throughput (bytes/s), NaN without one.
        versions: numbers in `Index`, that of an empty text where it is not known.
        age: seconds of each report.
        started: when the broker's process started, seconds since 1970, NaN where that is not known.
        reported: brokers whose report came and was not left out.
        bundles: those that were reported, each once.
        owner: the broker of each.
        carried: a row for each of `FIGURES`.
        left_out: bundles that validation left out.
        policies: number in `Index` of what policies said, a single one.
    """

    brokers: Ints
    usage: Floats
    limits: Floats
    traffic: Floats
    averages: Floats
    versions: Ints
    age: Floats
    started: Floats
    reported: Flags
    bundles: Ints
    owner: Ints
    carried: Floats
    left_out: Flags
    policies: Ints

    def packed(self) -> bytes:
        """Return it as bytes, ids as 32-bit numbers and what bundles carry as 32-bit floats: there may be millions."""
        small = self._replace(
            brokers=self.brokers.astype(np.int32),
            bundles=self.bundles.astype(np.int32),
            owner=self.owner.astype(np.int32),
            carried=self.carried.astype(np.float32),
        )
        out = io.BytesIO()
        for column in small:
            np.save(out, column, allow_pickle=False)
        return out.getvalue()

    @classmethod
    def unpacked(cls, data: bytes) -> Self:
        """Return the sample that `packed` made bytes of."""
        source = io.BytesIO(data)
        return cls(*(np.load(source, allow_pickle=False) for _ in cls._fields))


class Coverage(BaseModel):
    """What part of the stretch that was asked for a recording covers.

    Attributes:
        start: of the stretch that was asked for.
        end: likewise.
        first: the first sample.
        last: the last one.
        samples: how many count, one per minute at most.
        minutes: that they stand for.
        expected: how many there would be without a gap.
        gaps: how many times samples were missing for longer than `state_max_gap` intervals.
        longest_gap_minutes: the longest of them.
        blocked: samples that validation found unfit to be judged.
        repeated: further samples of a minute that had one.
        unreadable: what could not be read and why, the first ones.
        unreadable_count: how many.
        made: how bundles were made where the recording has none; empty otherwise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: AwareDatetime
    end: AwareDatetime
    first: AwareDatetime
    last: AwareDatetime
    samples: int
    minutes: float
    expected: int
    gaps: int = 0
    longest_gap_minutes: int = 0
    blocked: int = 0
    repeated: int = 0
    unreadable: tuple[str, ...] = ()
    unreadable_count: int = 0
    made: str = ""

    @property
    def sentence(self) -> str:
        """Return it in words."""
        share = self.samples / self.expected if self.expected else 1.0
        words = [f"{self.samples:,} of {self.expected:,} samples ({share:.1%})"]
        words += [f"from {self.first:%Y-%m-%d %H:%M} to {self.last:%Y-%m-%d %H:%M} UTC"]
        if self.gaps:
            words.append(f"{self.gaps} gaps, the longest {self.longest_gap_minutes} minutes")
        if self.blocked:
            words.append(f"{self.blocked} were blocked by validation and do not count")
        if self.repeated:
            words.append(f"{self.repeated} further samples of a minute that had one")
        if self.unreadable_count:
            words.append(f"{self.unreadable_count} could not be read")
        if self.minutes < MINUTES_OF_A_DAY:
            words.append(f"figures a day are extrapolated from {self.minutes / 60:.1f} hours")
        return ", ".join(words)


class Index(VersionedDocument):
    """What the files of a recording mean.

    Attributes:
        brokers: names by number.
        bundles: likewise.
        minutes: of the samples, since 1970, ascending.
        places: of the samples: number of the file, first byte, length.
        versions: of brokers by number.
        policies: what policies said, by number.
        coverage: what part of the stretch they are.
    """

    FILE: ClassVar[str] = "index.json"

    brokers: tuple[str, ...]
    bundles: tuple[str, ...]
    minutes: tuple[int, ...]
    places: tuple[tuple[int, int, int], ...]
    versions: tuple[str, ...] = ()
    policies: tuple[Policies, ...]
    coverage: Coverage


def minute_of(at: datetime) -> int:
    """Return the minute of a time, since 1970."""
    return int(at.timestamp() // 60)
