"""What the documents of a run say for a recording: whether it counts, who was left out, what policies said."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.storage.path import json_document

if TYPE_CHECKING:
    from pulsar_rebalancer.storage.path import StoragePath

_FILES = ("validation.json", "input/state.json", Policies.FILE)


@dataclass(frozen=True)
class RunDocuments:
    """What validation said of a run, who was drained then, and what policies said.

    Attributes:
        blocked: validation found that it cannot be judged.
        left_out: brokers and bundles that validation left out, and brokers that were drained.
        policies: `input/policies.json` as text, None where there is none.
    """

    blocked: bool
    left_out: frozenset[str]
    policies: str | None

    @classmethod
    def of(cls, validation: str | None, state: str | None, policies: str | None) -> RunDocuments:
        """Read the documents; what is missing or unreadable of the first two says nothing."""
        found, kept = _document(validation).get("findings"), _document(state).get("drains")
        findings = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
        effects = [(each.get("effect"), str(each.get("subject"))) for each in findings]
        drained = kept.get("brokers") if isinstance(kept, dict) else None
        left_out = {subject for effect, subject in effects if effect == Effect.QUARANTINE} | set(drained or ())
        return cls(any(effect == Effect.BLOCK for effect, _ in effects), frozenset(left_out), policies)

    @classmethod
    def read(cls, run: StoragePath) -> RunDocuments:
        """Read them from the folder of a run."""
        return cls.of(*(_text(run / file) for file in _FILES))


def policies_of(text: str | None) -> Policies:
    """Return what policies said; a run is not decided without that either.

    Raises:
        SnapshotError: `file_missing`, `file_damaged` or `file_version`.
    """
    if text is None:
        raise SnapshotError(Reason.FILE_MISSING, f"{Policies.FILE} is missing")
    return Policies.parse(json_document(text, Policies.FILE), Policies.FILE)


def _document(text: str | None) -> dict[str, object]:
    try:
        found: Any = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(file: StoragePath) -> str | None:
    return file.read_bytes().decode(errors="replace") if file.exists() else None
