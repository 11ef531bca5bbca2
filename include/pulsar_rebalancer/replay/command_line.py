"""The replay application's arguments."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments; the trace arguments have defaults."""
    parser = argparse.ArgumentParser(prog="replay.py", description="Replay recorded load through variants.")
    parser.add_argument("--root", default="", help="storage root, the folder of all clusters")
    parser.add_argument("--replay", required=True, action="append", help="folder of a replay; may be repeated")
    trace = parser.add_argument_group("traces", "CSV with a series of CPU per broker; bundles are generated")
    trace.add_argument("--trace", action="append", default=[], metavar="FILE", help="CSV trace; may be repeated")
    trace.add_argument("--bundles", type=int, default=64, help="number of bundles per broker (64)")
    trace.add_argument(
        "--spread", type=float, default=0.8, help="standard deviation of the logarithm of their sizes (0.8)"
    )
    trace.add_argument("--seed", type=int, default=1, help="seed of their sizes and of placement (1)")
    trace.add_argument("--messages-per-percent", type=float, default=1000, help="msg/s for a percent of CPU (1000)")
    trace.add_argument("--settings", default="{}", help="current settings as JSON; else Pulsar's defaults")
    trace.add_argument("--grid", help="settings to compare, as JSON")
    trace.add_argument("--worth", type=float, default=10, help="unloads a day that a point of range is worth (10)")
    trace.add_argument("--days-apart", action="store_true", help="replay every day separately")
    return parser.parse_args(arguments)
