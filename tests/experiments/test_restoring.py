"""Where brokers come back, restoring the remembered placement settles sooner and closer than AvgShedder without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from experiments.restoring.__main__ import CASES, measured, rows


@pytest.mark.parametrize("name", CASES)
def test_restoring_settles_sooner_and_closer(name: str) -> None:
    plain, restoring = (measured(CASES[name], 1, restore=restore) for restore in (False, True))

    assert plain.settled_after is not None
    assert restoring.settled_after is not None
    assert restoring.settled_after < plain.settled_after
    assert 2 * restoring.range_mean < plain.range_mean
    assert restoring.range_end < 3 < plain.range_end


def test_the_document_has_the_table_of_all_seeds() -> None:
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")
    assert "\n".join(rows()) in page
