"""`input/splits.json`: what collect read of the few bundles that may have to be split."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from pydantic import BaseModel, ConfigDict

from pulsar_rebalancer.splitting.algorithms import TopicLoad
from pulsar_rebalancer.storage import documents

if TYPE_CHECKING:
    from pulsar_rebalancer.storage.path import StoragePath


class Candidate(BaseModel):
    """One bundle that may have to be split.

    Attributes:
        bundle: `tenant/namespace/0x…_0x…`.
        bounds: those of the namespace's bundles, ascending; empty when they could not be read.
        topics: hash, msg/s and bytes/s of each topic that the owner lists; None when they could not be read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bundle: str
    bounds: tuple[int, ...] = ()
    topics: tuple[TopicLoad, ...] | None = None


class Candidates(BaseModel):
    """The bundles of a run that may have to be split; a run without the file has none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = documents.VERSION
    bundles: tuple[Candidate, ...] = ()

    def write(self, run: StoragePath) -> None:
        """Write to `<run>/input/splits.json`, unless there is none."""
        if self.bundles:
            (run / "input" / "splits.json").write_json(self.model_dump(mode="json"))

    @classmethod
    def read(cls, run: StoragePath) -> Self:
        """Read from `<run>/input/splits.json`.

        Raises:
            SnapshotError: `file_damaged` or `file_version`.
        """
        file = run / "input" / "splits.json"
        return documents.read(cls, file) if file.exists() else cls()
