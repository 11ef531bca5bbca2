"""Prove that two commits decide the same: moves, decisions, splits, state and summary of 2,774 runs, row by row.

    .venv/bin/python scripts/same_decisions.py record BASE        # once, with the commit that is right
    .venv/bin/python scripts/same_decisions.py decide CHECKOUT    # --quick: one of eleven runs
    .venv/bin/python scripts/same_decisions.py compare CHECKOUT   # exit code 1 if the answers differ

BASE and CHECKOUT are folders with a source tree and its .venv. Recorded are the files that a run has before it decides:
200 runs of each shedder, each with the state that the run before it left, and manual plans, shown and carried out
(`recorded_runs.py`). Every run is decided only from its files: a difference does not spread to later runs. `record` and
`decide` take six minutes each on two cores. Differences that are meant belong in RENAMED or ALLOWED.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from hashlib import sha256
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Row = dict[str, Any]

RENAMED: dict[str, str] = {}
"""New names of reason codes, by old name; several old codes may become one."""
ALLOWED = {
    "state": {"shadow", "placement"},  # of features that were removed
    "summary": {"shadow", "resolved", "hash"},  # `resolved` has all settings
}
"""Fields that may differ. Hashes of plans are not compared: each changes if a field leaves the state."""
TEXTS = {"explanation", "sentence", "splits_told"}
"""Fields for people; they are compared separately."""
ENTRIES = {
    "runs": ("pulsar_rebalancer_spark.rebalance:main",),
    "session": ("pulsar_rebalancer_spark.application:session",),
    "show": ("pulsar_rebalancer.decide.run_plan:plan_request", "pulsar_rebalancer.decide.by_hand.preview:show"),
    "carry": (
        "pulsar_rebalancer.decide.run_plan:replan",
        "pulsar_rebalancer.decide.run_plan:plan_again",
        "pulsar_rebalancer.decide.by_hand.recheck:carry_out_shown",
    ),
    "form": ("pulsar_rebalancer.run.request:parse_form", "pulsar_rebalancer.run.manual_request:parse_form"),
    "storage": (
        "pulsar_rebalancer.storage.documents:ClusterStorage",
        "pulsar_rebalancer.storage.layout:ClusterStorage",
    ),
    "path": ("pulsar_rebalancer.storage.path:StoragePath",),
    "reasons": ("pulsar_rebalancer.reasons:Reason",),
}
"""What production calls, by the names that it has in any commit: the first that exists is used."""
SPARK = (
    "--master local[2] --driver-memory 1g --conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false "
    "--conf spark.log.level=ERROR --conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1 "
    "--driver-java-options '-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m' pyspark-shell"
)
EVERY = 11
"""Of this number of recorded clusters, `--quick` decides one."""


def entry(name: str) -> Any:
    """Return what the checkout has under one of the names in `ENTRIES`."""
    for path in ENTRIES[name]:
        module, of_module = path.split(":")
        try:
            return getattr(import_module(module), of_module)
        except (ImportError, AttributeError) as error:
            missing = error
    raise SystemExit(f"{name}: {missing}; add its present name to ENTRIES")


def decide(root: Path, cases: Iterable[Row]) -> list[Row]:
    """Decide runs below a storage root as production does, and return the answers: first runs, then manual plans."""
    cases = sorted(cases, key=lambda case: case["entry"] != "runs")
    runs = [str(root / case["run"]) for case in cases if case["entry"] == "runs"]
    said = StringIO()
    with redirect_stderr(said), redirect_stdout(StringIO()):
        if runs:
            spark = entry("session")()
            with ThreadPoolExecutor(4) as several:
                list(several.map(lambda run: decide_run(spark, root, run), runs))
    failed = dict(re.findall(r"not decided: (\S+): .*\[(\w+)\]", said.getvalue()))
    if failed:
        print(said.getvalue()[:4000], file=sys.stderr)
    return [answer(root, case, failed.get(str(root / case["run"]), "") or by_hand(root, case)) for case in cases]


def decide_run(spark: Any, root: Path, run: str) -> None:
    """Decide a run in a session of its own."""
    own: Future[Any] = Future()
    own.set_result(spark.newSession())
    entry("runs")(["--root", str(root), "--run", run], own)


def by_hand(root: Path, case: Row) -> str:
    """Show a manual plan, or carry out a plan; return why this is refused."""
    run, storage = entry("path")(str(root / case["run"])), entry("storage")(str(root), case["cluster"])
    try:
        if case["entry"] == "show":
            entry("show")(storage, run, entry("form")(case["form"]), "ada")
        elif case["entry"] == "carry":
            settings, summary = root / case["run"] / "input/settings.json", root / case["after"] / "plan/summary.json"
            if not summary.exists():
                return "nothing was shown"
            given = json.loads(settings.read_text())
            given["params"]["plan"] = json.loads(summary.read_text())["hash"]
            settings.write_text(json.dumps(given))
            entry("carry")(storage, run)
    except Exception as error:
        return str(getattr(error, "reason", type(error).__name__))
    return ""


def answer(root: Path, case: Row, error: str) -> Row:
    """Return what was decided about a run, as JSON values; of the bundles' means and costs only a hash."""
    folder, found = root / case["run"], {"run": case["run"], "kind": case["kind"], "error": error}
    if error:
        return found
    found |= {name: rows(folder / f"plan/{name}.parquet") for name in ("moves", "decisions", "splits")}
    found |= {name: json.loads((folder / f"plan/{name}.json").read_text()) for name in ("state", "summary")}
    means = found["state"]["means"]
    if means != json.loads((folder / "input/state.json").read_text())["decision"].get("means", ""):
        for file in (root / case["cluster"] / "state" / means.replace("means", name) for name in ("means", "costs")):
            found[file.name[:5]] = sha256(str(rows(file)).encode()).hexdigest() if file.exists() else ""
    plan = (found["summary"].get("by_hand") or {}).get("carries_out") or "no plan"
    return dict(json.loads(json.dumps(found).replace(plan, "HASH").replace(plan[:16], "HASH")))


def rows(file: Path) -> list[Row]:
    """Return a table's rows as JSON values in a canonical order; none if there is no file."""
    found = pq.read_table(file).to_pylist() if file.exists() else []
    return sorted((json.loads(json.dumps(row, default=str)) for row in found), key=canonical)


def canonical(value: Any) -> str:
    """Return a JSON value as text, which is the same for equal values."""
    return json.dumps(value, sort_keys=True)


def decide_copy(corpus: Path, out: Path, *, quick: bool) -> None:
    """Decide a copy of the recorded runs, and write the answers."""
    cases = read_lines(corpus / "cases.jsonl")
    clusters = list(dict.fromkeys(case["cluster"] for case in cases))[:: EVERY if quick else 1]
    known = {str(code) for code in entry("reasons")}
    codes = {old: new for old, new in RENAMED.items() if old not in known}
    with tempfile.TemporaryDirectory(dir=corpus) as copy:
        for cluster in clusters:
            shutil.copytree(corpus / "clusters" / cluster, Path(copy, cluster))
        for file in Path(copy).rglob("*.json") if codes else ():
            file.write_text(json.dumps(renamed(json.loads(file.read_text()), codes)))
        answers = decide(Path(copy), [case for case in cases if case["cluster"] in set(clusters)])
    write_lines(out, answers)
    print(f"{len(answers)} runs decided, {out}")


def read_lines(file: Path) -> list[Row]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def write_lines(file: Path, found: Iterable[Row]) -> None:
    """Write rows as JSON lines."""
    file.write_text("".join(f"{canonical(row)}\n" for row in found))


def renamed(value: Any, codes: Mapping[str, str]) -> Any:
    """Return a JSON value with other reason codes; the counts of codes that become one are added."""
    if isinstance(value, list):
        return [renamed(each, codes) for each in value]
    if not isinstance(value, dict):
        return codes.get(value, value) if isinstance(value, str) else value
    changed: Row = {}
    for name, each in value.items():
        name, each = codes.get(name, name), renamed(each, codes)
        changed[name] = changed[name] + each if name in changed else each
    return changed


def comparable(value: Any, allowed: set[str], texts: list[str]) -> Any:
    """Return a JSON value without allowed, empty and text fields; the texts are added to a list."""
    if isinstance(value, list):
        return [comparable(each, allowed, texts) for each in value]
    if not isinstance(value, dict):
        return value
    texts += [f"{name}: {value[name]}" for name in sorted(TEXTS & value.keys())]
    kept = {name: comparable(each, allowed, texts) for name, each in value.items() if name not in allowed | TEXTS}
    # A field that is empty everywhere may be missing in another commit.
    return {name: each for name, each in kept.items() if each not in (None, "", [], {})}


def parts_of(run: Row) -> Row:
    """Return the parts of an answer to compare, one of them the texts."""
    texts: list[str] = []
    parts = {name: comparable(part, ALLOWED.get(name, set()), texts) for name, part in renamed(run, RENAMED).items()}
    ordered = {name: sorted(part, key=canonical) if isinstance(part, list) else part for name, part in parts.items()}
    return ordered | {"texts": sorted(texts)}


def difference(part: str, old: Any, new: Any) -> str:
    """Return the first fields in which a part of an answer differs, or in which its first row does."""
    if isinstance(old, list) and isinstance(new, list):
        gone, come = ([each for each in side if each not in other] for side, other in ((old, new), (new, old)))
        row = {} if part == "texts" or not gone else gone[0]
        same = {name: row[name] for name in ("source", "bundle", "broker") if name in row}
        twin = next((each for each in come if row and same.items() <= each.items()), None)
        head = f"{part}: {len(gone)} of {len(old)} rows before, {len(come)} of {len(new)} now"
        return f"{head}\n      {difference(str(same), row, twin) if twin else f'{gone[:1]} -> {come[:1]}'}"
    if isinstance(old, dict) and isinstance(new, dict):
        names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
        return f"{part}: " + "; ".join(f"{n} {old.get(n)!r:.300} -> {new.get(n)!r:.300}" for n in names[:5])
    return f"{part}: {old!r:.200} -> {new!r:.200}"


def compare(base: Path, new: Path, *, ignore_texts: bool, most: int) -> int:
    """Print how many runs of each kind are equal and the first differences; return 1 if there is any."""
    before, after = ({run["run"]: run for run in read_lines(file)} for file in (base, new))
    counts = {kind: Counter[str]() for kind in sorted({run["kind"] for run in after.values()})}
    total, codes, found = Counter[str](), set[str](), []
    for name, run in after.items():
        old, now = parts_of(before[name]), parts_of(run)
        unequal = [part for part in sorted({*old, *now}) if old.get(part) != now.get(part)]
        same = {"runs": 1, "equal": unequal in ([], ["texts"]), "texts": "texts" not in unequal}
        counts[run["kind"]].update(same)
        total.update({**same, "moves": len(old.get("moves", ())), "splits": len(old.get("splits", ()))})
        codes.update(row["reason"] for part in ("moves", "decisions", "splits") for row in old.get(part, ()))
        shown = [part for part in unequal if part != "texts" or not ignore_texts]
        found += [f"{run['kind']}: {name}\n    {difference(p, old.get(p), now.get(p))}" for p in shown[:2]]
    for kind, count in counts.items():
        print(f"{kind:28} {count['equal']:4} of {count['runs']:4} runs equal, {count['texts']:4} with equal texts")
    print(f"{total['equal']} of {total['runs']} runs equal, {total['texts']} with equal texts; recorded: {len(before)}")
    print(f"{total['moves']} rows of moves, {total['splits']} of splits, {len(codes)} reason codes; no hashes of plans")
    print(*found[:most], *([f"and {len(found) - most} more differences"] if found[most:] else []), sep="\n")
    return int(bool(found) or not after)


def main(arguments: list[str]) -> int:
    """Run a command; `record` and `decide` with the interpreter and the packages of the checkout."""
    parser = argparse.ArgumentParser(prog="same_decisions.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("record", "decide", "compare"))
    parser.add_argument("checkout", type=Path, help="folder of a source tree with its .venv")
    parser.add_argument("--corpus", type=Path, default=Path(tempfile.gettempdir(), "same-decisions"))
    parser.add_argument("--quick", action="store_true", help=f"decide: one of {EVERY} clusters")
    parser.add_argument("--ignore-texts", action="store_true", help="compare: texts for people may differ")
    parser.add_argument("--most", type=int, default=10, help="compare: number of differences to print")
    given = parser.parse_args(arguments)
    corpus, checkout = given.corpus.resolve(), given.checkout.resolve()
    out = corpus / f"decided-{checkout.name}.jsonl"
    if given.command == "compare":
        return compare(corpus / "answers.jsonl", out, ignore_texts=given.ignore_texts, most=given.most)
    if "SAME_DECISIONS" in os.environ:  # in the interpreter of the checkout
        source = import_module("pulsar_rebalancer").__file__ or ""
        if checkout not in Path(source).parents:
            raise SystemExit(f"{source} is not of {checkout}")
        sys.setswitchinterval(0.0005)  # as the application does
        if given.command == "record":
            import_module("scripts.recorded_runs").record(corpus)
        else:
            decide_copy(corpus, out, quick=given.quick)
        return 0
    here = Path(__file__).resolve().parents[1]
    path = os.pathsep.join(map(str, (here, checkout / "include", checkout / "spark_apps")))
    own = {"PYTHONPATH": path, "PYSPARK_SUBMIT_ARGS": SPARK, "SAME_DECISIONS": "1"}
    command = [checkout / ".venv/bin/python", "-m", "scripts.same_decisions", given.command, checkout]
    command += ["--corpus", corpus, *(["--quick"] if given.quick else [])]
    return subprocess.run(command, cwd=here, env=os.environ | own, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
