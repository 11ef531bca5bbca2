"""What a recording needs from a run's documents: whether the run counts, what was left out, and the policies."""

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
        """Parse the documents; `validation` and `state` are ignored if they are missing or unreadable."""
        listed, drains = _document(validation).get("findings"), _document(state).get("drains")
        findings = [finding for finding in listed if isinstance(finding, dict)] if isinstance(listed, list) else []
        effects = [(finding.get("effect"), str(finding.get("subject"))) for finding in findings]
        drained = drains.get("brokers") if isinstance(drains, dict) else None
        left_out = {subject for effect, subject in effects if effect == Effect.QUARANTINE} | set(drained or ())
        return cls(any(effect == Effect.BLOCK for effect, _ in effects), frozenset(left_out), policies)

    @classmethod
    def read(cls, run: StoragePath) -> RunDocuments:
        """Read the documents from a run's folder."""
        return cls.of(*(_text(run / file) for file in _FILES))


def policies_of(text: str | None) -> Policies:
    """Return the parsed policies.

    Raises:
        SnapshotError: `file_missing`, `file_damaged` or `file_version`.
    """
    if text is None:
        raise SnapshotError(Reason.FILE_MISSING, f"{Policies.FILE} is missing")
    return Policies.parse(json_document(text, Policies.FILE), Policies.FILE)


def _document(text: str | None) -> dict[str, object]:
    try:
        document: Any = json.loads(text or "{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _text(file: StoragePath) -> str | None:
    return file.read_bytes().decode(errors="replace") if file.exists() else None
