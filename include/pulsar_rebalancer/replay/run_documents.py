"""What a recording needs from a run's documents: whether the run counts, what was left out, and the policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run.request import Validation
from pulsar_rebalancer.run.state_before import StateBefore
from pulsar_rebalancer.storage.path import json_document

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_rebalancer.storage.path import StoragePath

    _Document = TypeVar("_Document")


@dataclass(frozen=True)
class RunDocuments:
    """A run's validation result, drained brokers and policies.

    Attributes:
        blocked: True if validation blocked the run.
        left_out: brokers and bundles that validation left out, and drained brokers.
        policies: text of `input/policies.json`; None if the file is missing.
    """

    blocked: bool
    left_out: frozenset[str]
    policies: str | None

    @classmethod
    def of(cls, validation: str | None, state: str | None, policies: str | None) -> RunDocuments:
        """Parse the documents, except for the policies.

        Raises:
            SnapshotError: `file_missing`, `file_damaged` or `file_version`.
            StateError: `state_version`.
        """
        validated = _parsed(validation, Validation.FILE, Validation.parse)
        drained = _parsed(state, StateBefore.FILE, StateBefore.parse).drains.brokers
        blocked = bool(validated.reasons(Effect.BLOCK))
        return cls(blocked, frozenset({*validated.quarantined, *drained}), policies)

    @classmethod
    def read(cls, run: StoragePath) -> RunDocuments:
        """Read the documents from a run's folder. Raises the same errors as `of`."""
        return cls.of(*(_text(run / file) for file in (Validation.FILE, StateBefore.FILE, Policies.FILE)))


def policies_of(text: str | None) -> Policies:
    """Return the parsed policies.

    Raises:
        SnapshotError: `file_missing`, `file_damaged` or `file_version`.
    """
    return _parsed(text, Policies.FILE, Policies.parse)


def _parsed(text: str | None, file: str, parse: Callable[[Any, str], _Document]) -> _Document:
    if text is None:
        raise SnapshotError(Reason.FILE_MISSING, f"{file} is missing")
    return parse(json_document(text, file), file)


def _text(file: StoragePath) -> str | None:
    return file.read_bytes().decode(errors="replace") if file.exists() else None
