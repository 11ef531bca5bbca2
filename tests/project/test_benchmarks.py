"""What may be put on the page of values: one commit, one machine, a quiet machine or a mark, verdicts with noise."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from lab.benchmarks import __main__ as command
from lab.benchmarks import conditions, page, results
from lab.benchmarks.measure import Comparison, Goal, Taken, alternately
from tests.own_git import ignore_own_git

BEFORE = "".join(
    f"<!-- benchmark-{part} -->\n\nold\n\n<!-- /benchmark-{part} -->\n" for part in ("conditions", *page.SHOWN)
)
LOADS = "os.getloadavg"


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


def test_a_whole_run_is_put_on_the_page(checkout, capsys):
    assert command.main([]) == 0
    text = checkout.page.read_text()
    assert "Measured on a machine." in text
    assert text.count("| all of it | 2.0 (2.0-2.0) | yardstick 1.0 |") == len(page.SHOWN)
    assert {each.repetitions for each in results.kept().values()} == {3}
    assert "old" not in text
    assert "under load" not in text.lower()
    assert capsys.readouterr().out.startswith("load of the machine: 0.30\n")
    # What it has written itself is no change of the sources.
    assert command.main([]) == 0
