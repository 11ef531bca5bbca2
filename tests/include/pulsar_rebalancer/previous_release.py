"""What the previous release left below its storage root and in its state store (see data/previous_release)."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.storage.layout import ClusterStorage

if TYPE_CHECKING:
    from pulsar_rebalancer.storage.path import StoragePath

CLUSTER = "east"
DAY = date(2026, 11, 21)
RUN = "20261121T170843.967769Z-9fd1cb61"
BUNDLES = ("acme/orders/0x55555555_0xaaaaaaaa", "globex/metrics/0xaaaaaaaa_0xffffffff")
"""What its plan moves, from HOT to COLD."""
HOST, PORT = "127.35.76.9", 18080
COLD, HOT = f"{HOST}:18081", f"{HOST}:18082"
DATA = Path(__file__).parent / "data" / "previous_release"


def unpack(root: Path) -> ClusterStorage:
    """Its storage root, copied to a place where it may be changed."""
    shutil.copytree(DATA / CLUSTER, root / CLUSTER)
    return ClusterStorage(str(root), CLUSTER)


def run_of(storage: ClusterStorage) -> StoragePath:
    return storage.runs / f"date={DAY}" / RUN


def stored(name: str) -> dict[str, Any]:
    """The documents of its state store: `counted` or `moved`."""
    found: dict[str, Any] = json.loads((DATA / f"store_{name}.json").read_text())
    return found
