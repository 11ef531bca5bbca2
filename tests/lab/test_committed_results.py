from dataclasses import asdict

import lab.experiments.__main__ as command
import pytest
from lab.experiments import page
from lab.experiments.results import gathered, read, read_all, write
from lab.experiments.run import run
from lab.experiments.scenario import load_all
from lab.experiments.variants import VARIANTS

from lab import evidence

CHEAP = ("by_hand_history_score", "by_hand_no_candidate", "by_hand_other_processes", "one_broker_added")


def test_documents_and_pictures_are_drawn_from_the_committed_results():
    stale = [file.name for file, text in evidence.written().items() if file.read_text(encoding="utf-8") != text]
    assert stale == [], "run make experiments DRAW=1"


def test_every_committed_result_is_of_a_scenario_and_names_its_commit():
    results = read_all(page.COMMITTED, load_all())
    assert {file.stem for file in page.COMMITTED.glob("*.json")} == results.keys()
    assert not [name for name, of_name in results.items() if not of_name.commit or command.CHANGED in of_name.commit]
    assert sum(file.stat().st_size for file in page.COMMITTED.glob("*.json")) < 800_000


@pytest.mark.parametrize("name", CHEAP)
def test_committed_results_are_what_the_sources_give(name, tmp_path):
    committed = read(page.COMMITTED / f"{name}.json")
    again = gathered(name, "", (run(load_all()[name], variant, 1) for variant in VARIANTS))
    write(tmp_path, again)
    measures = read(tmp_path / f"{name}.json").measures
    assert measures.keys() == committed.measures.keys()
    for variant, (row,) in measures.items():
        there = committed.measures[variant][committed.seeds.index(1)]
        assert asdict(row) == pytest.approx(asdict(there), rel=1e-4, abs=1e-4), variant
