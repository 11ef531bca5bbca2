"""The options of commands that read a cluster's files from outside Airflow."""

from __future__ import annotations

import argparse

from pulsar_rebalancer.names import CLUSTER_NAME


def parser_of(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a module's command, with the options that all these commands share."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--root", required=True, help="the storage root, a path or an object-store URI")
    parser.add_argument("--cluster", required=True, type=_cluster, help="name in the clusters file")
    parser.add_argument(
        "--max-age-seconds", required=True, type=positive, help="maximum age of the newest run, seconds"
    )
    return parser


def _cluster(text: str) -> str:
    if CLUSTER_NAME.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a cluster name: use letters, digits, . _ - only")
    return text


def positive(text: str) -> float:
    """Return the value of an option that must be positive.

    Raises:
        ArgumentTypeError: the text is not a positive number.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number
