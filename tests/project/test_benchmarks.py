"""What may be put on the page of figures: one commit, one machine, a quiet machine or a mark, verdicts with noise."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from lab.benchmarks import __main__ as command
from lab.benchmarks import conditions, page, results
from lab.benchmarks.measure import Comparison, Goal, Taken, alternately
from lab.benchmarks.scripted_load import BURSTING, FIRST_BURST, TIMES, scripted
from tests.own_git import ignore_own_git

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BEFORE = "".join(
    f"<!-- benchmark-{part} -->\n\nold\n\n<!-- /benchmark-{part} -->\n" for part in ("conditions", *results.PARTS)
)
LOADS = "os.getloadavg"


def taken(*seconds: float) -> list[Taken]:
    return [Taken(each) for each in seconds]


class Checkout:
    """A repository with a page; parts are measured in no time, and report how often."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.page, self.repetitions = folder, folder / "docs" / "performance.md", 0
        (folder / "docs").mkdir()
        self.page.write_text(BEFORE)
        (folder / ".gitignore").write_text(".benchmarks/\n")
        self.git("init", "--quiet")
        self.commit("first")

    def git(self, *words: str) -> str:
        return subprocess.run(["git", *words], cwd=self.folder, capture_output=True, text=True, check=True).stdout

    def commit(self, content: str) -> str:
        (self.folder / "source.py").write_text(content)
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", content)
        return self.git("rev-parse", "--short", "HEAD").strip()

    def measure(self, repetitions: int, _only: str) -> Iterator[Comparison]:
        self.repetitions = repetitions
        subjects = {"measured": lambda: Taken(2.0), "yardstick": lambda: Taken(1.0)}
        yield Comparison("all of it", alternately(subjects, repetitions), Goal.fixed(3.0))


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    ignore_own_git(monkeypatch)
    made = Checkout(tmp_path)
    monkeypatch.setattr(conditions, "ROOT", tmp_path)
    monkeypatch.setattr(results, "FOLDER", tmp_path / ".benchmarks")
    monkeypatch.setattr(page, "PAGE", made.page)
    part = SimpleNamespace(measure=made.measure, __doc__="`part`: what it measures.")
    monkeypatch.setattr(command, "import_module", lambda _name: part)
    monkeypatch.setattr(conditions, "machine", lambda: "a machine")
    monkeypatch.setattr(command, "machine", lambda: conditions.machine())
    monkeypatch.setattr(results, "machine", lambda: conditions.machine())
    monkeypatch.setattr(LOADS, lambda: (0.3, 0.0, 0.0))
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds slept; nobody waits for them."""
    slept: list[float] = []
    monkeypatch.setattr(conditions, "time", SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append))
    return slept


def test_a_whole_run_is_put_on_the_page(checkout, capsys):
    assert command.main([]) == 0
    text = checkout.page.read_text()
    assert f"at commit `{checkout.git('rev-parse', '--short', 'HEAD').strip()}` on a machine" in text
    assert text.count("| all of it | 2.0 (2.0-2.0) | 1.0 (1.0-1.0) | 3.0 s met |") == len(results.PARTS)
    assert text.count("of 3 repetitions; load 0.3 before the part") == len(results.PARTS)
    assert "old" not in text
    assert "under load" not in text.lower()
    assert capsys.readouterr().out.startswith("load of the machine: 0.30\n")
    # What it has written itself is no change of the sources.
    assert command.main([]) == 0


@pytest.mark.parametrize("file", ["source.py", "new.py"])
def test_nothing_is_measured_for_the_page_in_a_dirty_tree(checkout, capsys, file):
    (checkout.folder / file).write_text("changed")
    assert command.main([]) == 1
    assert "commit or stash all changes first" in capsys.readouterr().out
    assert (checkout.repetitions, checkout.page.read_text()) == (0, BEFORE)


def test_a_part_measured_in_a_dirty_tree_is_kept_but_not_put_on_the_page(checkout, capsys):
    command.main([])
    before = checkout.page.read_text()
    (checkout.folder / "source.py").write_text("changed")
    assert command.main(["decide"]) == 0
    said = capsys.readouterr().out
    assert "measured with uncommitted changes: decide" in said
    assert 'commit or stash all changes, then run make benchmark PART="decide"' in said
    assert checkout.page.read_text() == before


def test_parts_of_two_commits_are_not_put_on_one_page(checkout, capsys):
    command.main([])
    before, first = checkout.page.read_text(), checkout.git("rev-parse", "--short", "HEAD").strip()
    second = checkout.commit("second")
    assert command.main(["decide", "collect"]) == 0
    said = capsys.readouterr().out
    others = [part for part in results.PARTS if part not in ("decide", "collect")]
    assert f"measured on different commits: {first}: {', '.join(others)}; {second}: decide, collect" in said
    assert f'then run make benchmark PART="{" ".join(others)}"' in said
    assert checkout.page.read_text() == before
    assert command.main(others) == 0
    assert f"`{second}`" in checkout.page.read_text()


def test_parts_of_two_machines_are_not_put_on_one_page(checkout, capsys, monkeypatch):
    command.main([])
    before = checkout.page.read_text()
    monkeypatch.setattr(conditions, "machine", lambda: "another")
    assert command.main(["decide"]) == 0
    assert "measured on different machines: a machine: interval, steps" in capsys.readouterr().out
    assert checkout.page.read_text() == before


def test_a_part_that_was_not_measured_keeps_the_page(checkout, capsys):
    (checkout.folder / ".benchmarks").mkdir()
    (checkout.folder / ".benchmarks" / "steps.json").write_text('{"part": "steps", "machine": {}}')
    assert command.main([part for part in results.PARTS if part not in ("unload", "steps")]) == 0
    said = capsys.readouterr().out
    assert "not measured: steps\n  not measured: unload\n" in said
    assert checkout.page.read_text() == BEFORE


def test_sources_that_change_meanwhile_are_no_result(checkout, monkeypatch, capsys):
    measure = checkout.measure

    def changing(*arguments):
        yield from measure(*arguments)
        checkout.commit("meanwhile")

    part = SimpleNamespace(measure=changing, __doc__="`part`: what it measures.")
    monkeypatch.setattr(command, "import_module", lambda _name: part)
    assert command.main(["decide"]) == 1
    assert "the sources changed meanwhile" in capsys.readouterr().out
    assert results.kept() == {}


def test_it_waits_for_a_quiet_machine(checkout, clock, monkeypatch, capsys):
    monkeypatch.setattr(LOADS, lambda: (3.2 if sum(clock) < 45 else 0.9, 0.0, 0.0))
    assert command.main([]) == 0
    said = capsys.readouterr().out
    assert said.startswith("load of the machine: 3.20\n     0 s  load 3.20, waiting for less than 1, 600 s at most\n")
    assert 45 <= sum(clock) < 60
    assert "load 0.9 before the part" in checkout.page.read_text()
    assert "under load" not in checkout.page.read_text().lower()


def test_after_ten_minutes_it_goes_on_and_marks_the_page(checkout, clock, monkeypatch, capsys):
    monkeypatch.setattr(LOADS, lambda: (1.4, 0.0, 0.0))
    assert command.main([]) == 0
    assert 600 <= sum(clock) <= 610  # for all parts together
    assert "goes on UNDER LOAD (1.40)" in capsys.readouterr().out
    text = checkout.page.read_text()
    assert "**Measured under load, so its figures are too large:** interval (1.4), decide (1.4)" in text
    assert text.count("**measured under load**: 1.4 before the part") == len(results.PARTS)


def test_a_trial_waits_for_nothing_and_keeps_nothing(checkout, clock, monkeypatch, capsys):
    monkeypatch.setattr(LOADS, lambda: (1.4, 0.0, 0.0))
    (checkout.folder / "source.py").write_text("changed")
    assert command.main(["decide", "--only", "all", "--repetitions", "1"]) == 0
    assert capsys.readouterr().out.startswith("load of the machine: 1.40\n")
    assert (clock, results.kept()) == ([], {})


def test_fewer_than_three_repetitions_are_no_median(checkout, capsys):
    with pytest.raises(SystemExit):
        command.main(["decide", "--repetitions", "2"])
    assert "2 repetitions; at least 3" in capsys.readouterr().err
    assert checkout.repetitions == 0


@pytest.mark.parametrize(
    ("measured", "floor", "verdict"),
    [
        (taken(5.1, 5.2, 5.3), taken(4.0, 4.0, 4.0), "met"),
        (taken(5.6, 5.7, 5.8), taken(4.0, 4.0, 4.0), "missed"),
        # With the largest or the smallest floor, the verdict would be the other one.
        (taken(5.6, 5.7, 5.8), taken(3.9, 4.0, 4.3), "missed within noise"),
        (taken(5.1, 5.2, 5.3), taken(3.6, 4.0, 4.1), "met within noise"),
        # One repetition of what is measured is on the other side.
        (taken(5.4, 5.6, 5.8), taken(4.0, 4.0, 4.0), "missed within noise"),
        (taken(5.1, 5.2, 5.6), taken(4.0, 4.0, 4.0), "met within noise"),
    ],
)
def test_a_goal_within_its_own_spread(measured, floor, verdict):
    goal = Goal.of(lambda seconds: seconds + 1.5, floor, words="floor + 1.5 s")
    assert page.verdict(Comparison("n", {"run": measured, "floor": floor}, goal)) == f"floor + 1.5 s: 5.5 s {verdict}"


def test_a_longer_script_begins_as_a_shorter_one_and_bursts() -> None:
    short, long = (scripted(48, minutes, 500, seed=1) for minutes in (5, 60))
    assert (long[:5] == short).all()
    assert long[0].sum() == pytest.approx(500)
    assert sorted((long[FIRST_BURST] / long[0]).round(9)) == [1] * (48 - BURSTING) + [TIMES] * BURSTING
