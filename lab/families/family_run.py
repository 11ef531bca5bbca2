"""Run families: one process for each core, one result for each family."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING

from lab.experiments.run import balance
from lab.families.drawing_clusters import draw
from lab.families.family_results import FamilyResults, Figures, rounded
from lab.families.sustained import DaysRecorder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lab.experiments.variants import Variant
    from lab.families.family import Family


def run(family: Family, variant: Variant, seed: int) -> Figures:
    """Let a strategy balance the cluster that the seed draws, and return the measures."""
    spec = draw(family, seed, direct=variant.direct)
    recorder = DaysRecorder(0)
    balance(spec, variant.settings, family.minutes, recorder)
    changes = sorted({event.minute for event in spec.events if event.minute < family.minutes})
    return rounded(asdict(recorder.sustained(changes)))


def run_all(
    families: Iterable[Family], variants: Sequence[Variant], *, seeds: int, processes: int, commit: str
) -> Iterator[FamilyResults]:
    """Run every family with every contestant; yield each family when it is done.

    Args:
        seeds: number of each family's seeds to run, starting with the first; None for all.
    """
    started = time.monotonic()
    with ProcessPoolExecutor(processes) as pool:
        begun = [
            (
                family,
                {
                    variant.name: [pool.submit(run, family, variant, seed) for seed in family.seeds[:seeds]]
                    for variant in variants
                },
            )
            for family in families
        ]
        for family, futures in begun:
            runs = {name: [future.result() for future in of_seeds] for name, of_seeds in futures.items()}
            print(f"{time.monotonic() - started:6.0f} s  {family.name}", flush=True)
            yield FamilyResults(family.name, commit, family.seeds[:seeds], runs)
