"""Check and operate the Pulsar rebalancer from outside Airflow."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pulsar_rebalancer.command import check_age, drain, inspect

SUBCOMMANDS = {"check-age": check_age, "drain": drain, "inspect": inspect}
"""Module of each subcommand: its docstring is the help, `add_options` adds options, `run` returns the exit code."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pulsar-rebalancer", description=__doc__)
    subcommands = parser.add_subparsers(metavar="SUBCOMMAND", required=True)
    for name, module in SUBCOMMANDS.items():
        words = module.__doc__ or ""
        options = subcommands.add_parser(
            name, help=words.partition("\n")[0], description=words, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.add_options(options)
        options.set_defaults(run=module.run)
    given = parser.parse_args(arguments)
    code: int = given.run(given)
    return code


if __name__ == "__main__":
    sys.exit(main())
