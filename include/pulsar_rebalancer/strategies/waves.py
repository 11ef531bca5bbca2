"""Which clusters need waves: those whose leader may mistake the planned destinations of two bundles."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_rebalancer.run.tables import BrokerSample

_RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:\.\d+)*")
"""A release, or a distributor's with further numbers. What carries a suffix may have been built from any source."""

_FIRST_OF_40, _FIRST = (4, 0, 10), (4, 2, 1)
"""Of 4.1 there is no release with the cure (release notes of 4.0.10 and 4.2.1, 27 April 2026)."""


def needed(brokers: Iterable[BrokerSample]) -> bool:
    """Return whether the same hash range of two namespaces must not move at once; one old broker is enough.

    The leader of the modular load manager kept a planned destination only by hash range until apache/pulsar #25518
    (ModularLoadManagerImpl.setNamespaceBundleAffinity). Any broker may become the leader. The extensible load manager
    keeps none: its brokers are known by their own averages.
    """
    return any(broker.load_average is None and _is_old(broker.version) for broker in brokers)


def _is_old(version: str | None) -> bool:
    found = _RELEASE.fullmatch(version or "")
    if found is None:
        return True
    release = tuple(map(int, found.groups()))
    return release < (_FIRST_OF_40 if release[:2] == (4, 0) else _FIRST)
