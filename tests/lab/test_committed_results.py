"""The documents and pictures are those of the committed results, and these are what the sources give."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import asdict
from typing import TYPE_CHECKING

import lab.experiments.__main__ as command
import pytest
from lab.experiments import page
from lab.experiments.results import gathered, read, read_all, write
from lab.experiments.run import run
from lab.experiments.scenario import load_all
from lab.experiments.variants import VARIANTS
from scripts.drawing import ROOT
from tests.own_git import ignore_own_git

from lab import evidence

if TYPE_CHECKING:
    from pathlib import Path

CHEAP = ("by_hand_history_score", "by_hand_no_candidate", "by_hand_other_processes", "one_broker_added")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of its own with the committed results and documents."""
    for name in (*page.DRAWN, "docs/pictures"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    shutil.copytree(page.COMMITTED, tmp_path / "lab" / "experiments" / "results", dirs_exist_ok=True)
    for module, name in ((page, "COMMITTED"), (page, "FOLDER"), (evidence, "DOCUMENT")):
        monkeypatch.setattr(module, name, tmp_path / getattr(module, name).relative_to(ROOT))
    monkeypatch.setattr(evidence, "PARTS", (page,))
    monkeypatch.setattr(command, "ROOT", tmp_path)
    evidence.DOCUMENT.write_text("before\n<!-- problems -->\nyesterday\n<!-- /problems -->\nafter\n")
    (tmp_path / "source").write_text("1")
    ignore_own_git(monkeypatch)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def test_documents_and_pictures_are_drawn_from_the_committed_results() -> None:
    stale = [file.name for file, text in evidence.written().items() if file.read_text(encoding="utf-8") != text]
    assert stale == [], "run make experiments DRAW=1"


def test_every_committed_result_is_of_a_scenario_and_names_its_commit() -> None:
    results = read_all(page.COMMITTED, load_all())
    assert {file.stem for file in page.COMMITTED.glob("*.json")} == results.keys()
    assert not [name for name, of_name in results.items() if not of_name.commit or command.CHANGED in of_name.commit]
    assert sum(file.stat().st_size for file in page.COMMITTED.glob("*.json")) < 800_000


@pytest.mark.parametrize("name", CHEAP)
def test_committed_results_are_what_the_sources_give(name: str, tmp_path: Path) -> None:
    committed = read(page.COMMITTED / f"{name}.json")
    again = gathered(name, "", (run(load_all()[name], variant, 1) for variant in VARIANTS))
    write(tmp_path, again)
    measures = read(tmp_path / f"{name}.json").measures
    assert measures.keys() == committed.measures.keys()
    for variant, (row,) in measures.items():
        there = committed.measures[variant][committed.seeds.index(1)]
        assert asdict(row) == pytest.approx(asdict(there), rel=1e-4, abs=1e-4), variant


def test_one_scenario_renews_its_own_part(own: Path) -> None:
    others = read_all(page.COMMITTED, load_all())
    # Not committed: documents and results may differ from the commit that results name.
    assert command.main(["by_hand_history_score", "--seeds", "1", "--processes", "2", "--page"]) == 0
    results = read_all(page.COMMITTED, load_all())
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=own, check=True, capture_output=True, text=True).stdout
    renewed = results.pop("by_hand_history_score")
    assert (renewed.seeds, renewed.commit) == ((1,), head[:12])
    del others["by_hand_history_score"]
    assert results == others
    text = evidence.DOCUMENT.read_text()
    assert text.startswith("before\n<!-- problems -->\n\n<picture>")
    assert text.endswith("<!-- /problems -->\nafter\n")
    assert "yesterday" not in text


def test_changed_sources_give_no_committed_results(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "source").write_text("2")
    before = evidence.written()
    assert command.main(["by_hand_history_score", "--seeds", "1", "--page"]) == 2
    assert "commit these first" in capsys.readouterr().err
    assert evidence.written() == before
