from dataclasses import dataclass

from lab.experiments.__main__ import main
from lab.experiments.results import read
from lab.experiments.variants import VARIANTS
from tests.lab.test_scenarios import SOUND, scenario

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.state import ShedderState
from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample, SheddingResult
from pulsar_rebalancer.strategies.shedders.registry import STRATEGIES_VARIABLE

AVG, AVG_DEFAULT, _, THRESHOLD, UNIFORM, _, OVERLOAD, TRANSFER, GAIN, *BASELINES = VARIANTS


@dataclass(frozen=True)
class Turn(ShedderState):
    asked: int = 0


def every_third(sample: ClusterSample, state: ShedderState) -> SheddingResult:
    """A shedder from outside: each third run the first broker gives one bundle to the second."""
    asked = state.asked + 1 if isinstance(state, Turn) else 1
    moves = []
    source, destination = (broker.broker for broker in sample.compared_brokers[:2])
    if asked % 3 == 0:
        free = [bundle for bundle in sample.bundles.of_broker(source) if bundle.reason is None][:1]
        moves = [
            CandidateMove.new(held, pair=0, rank=0, measure=Measure.RATE, reason=Reason.TAKEN, destination=destination)
            for held in free
        ]
    return SheddingResult([], moves, Turn(asked=asked), "")


def breaking_down(sample: ClusterSample, state: ShedderState) -> SheddingResult:
    """A shedder from outside that ends in its second minute."""
    if isinstance(state, Turn):
        raise SystemExit("worn\nout")
    return SheddingResult([], [], Turn(asked=1), "")


def refusing(sample: ClusterSample, state: ShedderState) -> SheddingResult:
    """A shedder from outside that raises an error at once."""
    raise ValueError("no brokers")


def test_from_files_to_a_report(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv(STRATEGIES_VARIABLE, "")
    text = SOUND.replace('placed = "even"', 'placed = "load"\nload = [80, 10]').replace("count = 4", "count = 20")
    scenario(tmp_path, text)
    command = ["--seeds", "2", "--processes", "2", "--scenarios", str(tmp_path)]
    for shedder in (breaking_down, refusing, every_third):
        command += ["--strategy", f"{__name__}:{shedder.__name__}"]
    files = [tmp_path / folder / "results" / "mine.json" for folder in ("first", "again")]
    for folder in ("first", "again"):
        assert main([*command, "--output", str(tmp_path / folder)]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    # What raises an exception costs only its own row.
    failures = f"mine, {__name__}:breaking_down: minute 1: SystemExit: worn out\n"
    failures += f"mine, {__name__}:refusing: minute 0: ValueError: no brokers\n"
    assert capsys.readouterr().err == failures * 2
    measures = read(files[0]).measures
    assert [len(rows) for rows in measures.values()] == [2] * (len(VARIANTS) + 1)
    moved = {variant: rows[0].bundles_moved for variant, rows in measures.items()}
    assert not any(moved[variant.name] for variant in BASELINES)
    assert moved["AvgShedder"] > 0
    assert moved[f"{__name__}:every_third"] == 20 // 3
    report = (tmp_path / "first" / "report.md").read_text()
    assert "## t\n" in report
    assert f"| {__name__}:every_third | {20 // 3} | {20 // 3} |" in report
