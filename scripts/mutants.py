"""Put small faults into the code that decides and moves, and list those that no test notices; `make mutants` runs it.

Tests are imported once. They run once to see which lines each of them runs; after that a fork of this process runs, for
each fault, the tests that run its line, the quickest first, until one fails. Faults are drawn by a seed. Those that
survive are written to tests/survivors.md, with the reasons that people gave there.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import hashlib
import importlib
import mmap
import os
import pickle
import re
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import hypothesis
import pytest
from scripts.mutations import Mutant, mutants

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
SURVIVORS = ROOT / "tests" / "survivors.md"
NO_REASON = "**none yet**"
SHARE = 0.95
"""The least share of faults of a subject that has to be noticed; a reason makes no survivor noticed."""
SLOW = 8.0
"""CPU seconds; a test that takes longer is left out."""
MEMORY = 6 << 30
"""Bytes; for faults that never stop to fill a list."""
OPTIONS = [
    "--override-ini=addopts=--import-mode=importlib",
    *(f"-pno:{name}" for name in ("terminal", "cacheprovider")),
]
DOMAIN, OPERATORS = "include/pulsar_rebalancer", "plugins/pulsar_rebalancer_airflow/operators"


class Subject(NamedTuple):
    """What is changed, as patterns of files, and the tests that may notice."""

    files: list[str]
    tests: list[str]


SUBJECTS = {
    "decide": Subject(
        [f"{DOMAIN}/{files}" for files in ("decide/*.py", "strategies/shedders/*.py", "strategies/caps.py")],
        [f"tests/{DOMAIN}/{name}" for name in ("decide", "strategies", "run", "replay")],
    ),
    "gate": Subject(
        [f"{DOMAIN}/carry_out/gate.py"],
        [f"tests/{DOMAIN}/carry_out"]
        + [f"tests/{OPERATORS}/test_{name}.py" for name in ("gate", "question", "approve", "split")],
    ),
    "waves": Subject(
        [f"{DOMAIN}/carry_out/{name}.py" for name in ("move_executor", "bundle_move", "move_history")],
        [f"tests/{DOMAIN}/carry_out"]
        + [f"tests/{OPERATORS}/test_{name}.py" for name in ("unload", "unload_again", "stop", "report")],
    ),
    "counting": Subject(
        [f"{DOMAIN}/state.py", f"{DOMAIN}/strategies/sample.py"],
        [f"tests/{DOMAIN}/{name}" for name in ("test_counting.py", "strategies", "decide", "replay")]
        + [f"tests/{OPERATORS}/test_record.py"],
    ),
    "approval": Subject(
        [f"{DOMAIN}/carry_out/gate.py", f"{OPERATORS}/approve.py"],
        [f"tests/{DOMAIN}/carry_out/test_approval.py"]
        + [f"tests/{OPERATORS}/test_{name}.py" for name in ("approve", "question", "gate")],
    ),
    "manual plans": Subject(
        [f"{DOMAIN}/decide/sources/*.py", f"{DOMAIN}/decide/*.py", f"{DOMAIN}/orders/manual_plans.py"],
        [f"tests/{DOMAIN}/decide", f"tests/{DOMAIN}/test_counting.py"]
        + [f"tests/{OPERATORS}/test_{name}.py" for name in ("by_hand", "decide", "control_state")],
    ),
    "client gaps": Subject(
        [f"{DOMAIN}/carry_out/client_gap_meter.py"],
        [f"tests/{DOMAIN}/{name}" for name in ("carry_out/test_client_gap_meter.py", "run/test_client_gap.py")]
        + [f"tests/{OPERATORS}/test_unload_client_gap.py"],
    ),
    "pace": Subject(
        [f"{DOMAIN}/carry_out/move_executor.py"],
        [
            f"tests/{DOMAIN}/carry_out/test_{name}.py"
            for name in ("pace", "move_executor", "kept_destinations", "strays")
        ]
        + [f"tests/{OPERATORS}/test_{name}.py" for name in ("unload_client_gap", "unload")],
    ),
    "rolling restarts": Subject(
        [f"{DOMAIN}/{name}.py" for name in ("decide/rolling", "decide/roll_plan", "orders/roll_document")],
        [f"tests/{DOMAIN}/decide/test_{name}.py" for name in ("rolling", "roll_plan", "run_plan")]
        + [f"tests/{DOMAIN}/decide/sources/test_returns.py", f"tests/{OPERATORS}/test_roll_operator.py"]
        + [f"tests/{DOMAIN}/orders"],
    ),
    "tokens": Subject(
        [f"{DOMAIN}/pulsar/tokens.py"], [f"tests/{DOMAIN}/pulsar/test_{name}.py" for name in ("tokens", "secrets")]
    ),
    "settings and windows": Subject(
        [f"{DOMAIN}/config/*.py", f"{DOMAIN}/orders/calendar.py"],
        [f"tests/{DOMAIN}/{name}" for name in ("config", "orders")],
    ),
}


def drawn(subject: Subject, seed: int, count: int) -> list[Mutant]:
    """Return the faults of a subject in the order of a draw; a changed function does not change it for others."""
    paths = {files: sorted(ROOT.glob(files)) for files in subject.files}
    if missing := [files for files, those in paths.items() if not those]:
        raise ValueError(f"no file matches {', '.join(missing)}")
    found = [mutant for those in paths.values() for path in those for mutant in mutants(path)]
    return sorted(found, key=lambda mutant: hashlib.sha256(f"{seed} {key(mutant)}".encode()).digest())[:count]


def key(mutant: Mutant) -> str:
    """Return the name of a fault, without line numbers."""
    return f"{mutant.path.relative_to(ROOT)} `{mutant.where}`: `{mutant.change}`".replace("|", "\\|")


class Runner:
    """The loop that pytest runs instead of its own."""

    def __init__(self, tried: dict[str, list[Mutant]]) -> None:
        self.tried = tried
        self.survivors: dict[str, list[Mutant]] = {name: [] for name in tried}
        self.lines: set[tuple[str, int]] = set()
        self.of_fixtures: dict[Any, set[tuple[str, int]]] = defaultdict(set)
        self.files = {str(mutant.path) for drawn in tried.values() for mutant in drawn}
        self.noticed: Counter[tuple[Path, str]] = Counter()
        self.at = mmap.mmap(-1, 4)
        """Number of the test that runs, written by a fork."""
        self.said = os.fdopen(os.dup(1), "w", buffering=1)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try every fault; tests have been imported, and none has run."""
        with tempfile.TemporaryDirectory() as folder:
            traced = Path(folder) / "traced"
            _forked(lambda: self._trace(session, traced))
            runs: dict[str, tuple[float, set[tuple[str, int]]]]
            modules, runs = pickle.loads(traced.read_bytes())
        for module in modules - sys.modules.keys():
            with suppress(Exception):
                importlib.import_module(module)
        every = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
        self.functions = [each for each in every if each.__code__.co_filename in self.files]
        gc.freeze()
        left_out = {item.nodeid for item in session.items} - runs.keys()
        self.said.write(f"{len(runs)} tests; left out as slow or failing: {sorted(left_out)}\n")
        items = sorted((item for item in session.items if item.nodeid in runs), key=lambda item: runs[item.nodeid][0])
        for name, faults in self.tried.items():
            for mutant in faults:
                at = {(str(mutant.path), line) for line in mutant.lines}
                those = [item for item in items if not at.isdisjoint(runs[item.nodeid][1])]
                # What noticed others of the file most often first, then the quickest.
                those.sort(key=lambda item: -self.noticed[mutant.path, item.nodeid])
                self._try(name, mutant, [(item, runs[item.nodeid][0]) for item in those])
        return True

    def _try(self, name: str, mutant: Mutant, items: list[tuple[pytest.Item, float]]) -> None:
        begun = time.monotonic()
        survived = not items or _forked(lambda: self._notice(mutant, items)) == 0
        if survived:
            self.survivors[name].append(mutant)
            outcome = f"SURVIVED {len(items)} tests"
        else:
            noticed = items[int.from_bytes(self.at[:], "little")][0].nodeid
            self.noticed[mutant.path, noticed] += 1
            outcome = f"noticed by {noticed}"
        self.said.write(f"{time.monotonic() - begun:.1f} s: {key(mutant)}: {outcome}\n")

    def _notice(self, mutant: Mutant, items: list[tuple[pytest.Item, float]]) -> int:
        codes = {(code.co_qualname, code.co_firstlineno): code for code in _codes(mutant.code())}
        for function in self.functions:
            old = function.__code__
            if old.co_filename == str(mutant.path) and old.co_qualname == mutant.where:
                function.__code__ = codes[old.co_qualname, old.co_firstlineno]
        session = items[0][0].session
        following = [*(item for item, _ in items[1:]), None]
        with Path(os.devnull).open("w") as nowhere:
            for number, ((item, seconds), next_item) in enumerate(zip(items, following, strict=True)):
                self.at[:] = number.to_bytes(4, "little")
                faulthandler.dump_traceback_later(20 + 10 * seconds, exit=True, file=nowhere)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
                if session.testsfailed:
                    return 1
        return 0

    def _trace(self, session: pytest.Session, traced: Path) -> int:
        ran: dict[pytest.Item, tuple[float, set[tuple[str, int]]]] = {}
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            failed, self.lines, begun, used = session.testsfailed, set(), time.monotonic(), time.process_time()
            threading.settrace(self._entered)
            sys.settrace(self._entered)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            sys.settrace(None)
            seconds = time.monotonic() - begun
            if session.testsfailed == failed and time.process_time() - used < SLOW:
                ran[item] = seconds, self.lines
        for item, (_, lines) in ran.items():
            for definitions in item._fixtureinfo.name2fixturedefs.values():  # type: ignore[attr-defined]
                lines.update(*(self.of_fixtures[definition] for definition in definitions))
        traced.write_bytes(pickle.dumps((set(sys.modules), {item.nodeid: run for item, run in ran.items()})))
        return 0

    def _entered(self, frame: FrameType, _event: str, _value: object) -> Any:
        return self._line if frame.f_code.co_filename in self.files else None

    def _line(self, frame: FrameType, _event: str, _value: object) -> Any:
        self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """Note the lines of a fixture: one that several tests share runs only with the first of them."""
        before, self.lines = self.lines, set()
        try:
            return (yield)
        finally:
            self.of_fixtures[fixturedef] |= self.lines
            self.lines |= before


def _forked(job: Callable[[], int]) -> int:
    """Return the exit code of a job in a fork of this process."""
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nowhere, stream)
            code = job()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


def _codes(code: CodeType) -> list[CodeType]:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return [*inner, *(nested for each in inner for nested in _codes(each))]


def share(tried: list[Mutant], survivors: list[Mutant]) -> float:
    """Return the share of faults that tests notice."""
    return 1 - len(survivors) / len(tried)


def page(before: str, tried: dict[str, list[Mutant]], survivors: dict[str, list[Mutant]]) -> str:
    """Return the page of survivors: parts of subjects that were tried are new, with the reasons given before."""
    reasons = dict(re.findall(r"^\| (.+) \| (.+) \|$", before, re.MULTILINE))
    parts = dict(re.findall(r"^## (.+)\n\n((?:.|\n(?!## ))+)", before, re.MULTILINE))
    for name, those in survivors.items():
        rows = [f"| {each} | {reasons.get(each, NO_REASON)} |" for each in sorted(map(key, those))]
        noticed = len(tried[name]) - len(those)
        values = f"{len(tried[name])} tried, {noticed} noticed by tests: {share(tried[name], those):.1%}."
        parts[name] = "\n".join(
            [values, *(["", "| fault | why no test notices |", "| --- | --- |", *rows] * bool(rows))]
        )
    head = "# Faults that no test notices\n\n`make mutants` writes this page and keeps the reasons.\n"
    return head + "".join(f"\n## {name}\n\n{parts[name].strip()}\n" for name in SUBJECTS if name in parts)


def main() -> int:
    """Try the drawn faults; 1 if any survivor has no reason, or too many survive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"of {', '.join(SUBJECTS)}; default: all")
    parser.add_argument("--count", type=int, default=150, help="faults of each subject, default 150")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    names = asked.subjects or list(SUBJECTS)
    tried = {name: drawn(SUBJECTS[name], asked.seed, asked.count) for name in names}
    hypothesis.settings.register_profile("mutants", derandomize=True, database=None)
    hypothesis.settings.load_profile("mutants")
    runner = Runner(tried)
    tests = list(dict.fromkeys(test for name in names for test in SUBJECTS[name].tests))
    with tempfile.TemporaryDirectory() as folder:
        if code := pytest.main([*OPTIONS, f"--basetemp={folder}/tests", *tests], plugins=[runner]):
            return code
    before = SURVIVORS.read_text(encoding="utf-8") if SURVIVORS.exists() else ""
    SURVIVORS.write_text(page(before, tried, runner.survivors), encoding="utf-8")
    for name, those in runner.survivors.items():
        sys.stdout.write(f"{name}: {len(tried[name])} tried, {len(those)} survived\n")
    short = any(share(tried[name], those) < SHARE for name, those in runner.survivors.items())
    return int(short or NO_REASON in SURVIVORS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
