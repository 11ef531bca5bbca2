"""`input/state.json`: the stored state at the time of the sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state.manual_plans import Drains, HandedOver
from pulsar_rebalancer.state.roll_document import Roll
from pulsar_rebalancer.state.state_documents import DecisionState, MovesState
from pulsar_rebalancer.storage.documents import load

if TYPE_CHECKING:
    from pulsar_rebalancer.storage.path import StoragePath


class StateBefore(BaseModel):
    """The documents of the state store; each has its own version number.

    Attributes:
        decision: the last plan's number, the counters, and the file name of the moving averages.
        moves: bundles that were recently unloaded or split.
        drains: drained brokers, including a broker that a rolling restart has drained.
        roll: the active rolling restart; None if there is none.
        handed_over: the earlier plan that the run carries out; None if the run makes its own plan.
    """

    model_config = ConfigDict(frozen=True)

    FILE: ClassVar[str] = "input/state.json"

    decision: DecisionState = DecisionState()
    moves: MovesState = MovesState()
    drains: Drains = Drains()
    handed_over: HandedOver | None = None
    roll: Roll | None = None

    def write(self, run: StoragePath) -> None:
        """Write the document into the run's folder."""
        absent = {name for name in ("handed_over", "roll") if getattr(self, name) is None}
        (run / self.FILE).write_json(self.model_dump(mode="json", exclude=absent))

    @classmethod
    def read(cls, run: StoragePath) -> Self:
        """Read the document from the run's folder.

        Raises:
            SnapshotError: `file_missing` or `file_damaged`.
            StateError: `state_version`.
        """
        file = run / cls.FILE
        return cls.parse(file.read_json(), file.uri)

    @classmethod
    def parse(cls, document: Any, where: str) -> Self:
        """Return the parsed document. Raises the same errors as `read`."""
        if not isinstance(document, Mapping) or not {"decision", "moves", "drains"} <= document.keys():
            raise SnapshotError(Reason.FILE_DAMAGED, f"{where} is not a state")
        handed, roll = document.get("handed_over"), document.get("roll")
        return cls(
            decision=DecisionState.parse(document["decision"]),
            moves=MovesState.parse(document["moves"]),
            drains=Drains.parse(document["drains"]),
            handed_over=None if handed is None else load(HandedOver, handed, where),
            roll=None if roll is None else Roll.parse(roll),
        )
