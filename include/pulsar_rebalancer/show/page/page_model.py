"""The document that the page of a cluster shows: one typed model, read by a browser.

Nothing in it is computed in the browser. Scores are percent, gaps and ranges points of score, times UTC.
"""

from __future__ import annotations

from pydantic import AwareDatetime

from pulsar_rebalancer.show.page.condition import State, Tone
from pulsar_rebalancer.show.page.plan_view import PlanView
from pulsar_rebalancer.show.page.view import VERSION, View
from pulsar_rebalancer.strategies.shedders.profile import Line


class Status(View):
    """The strip at the top.

    Attributes:
        pairing: whether the strategy pairs brokers.
        sentence: why the rebalancer acts or does not.
        in_force: what people have asked for that holds now, a sentence; empty when nothing.
        collected_at: when the newest data was taken; None: never.
        score_range, deviation: of the brokers that were judged; None: none was.
    """

    cluster: str
    dag_id: str = ""
    mode: str
    strategy: str
    pairing: bool = False
    state: State
    tone: Tone
    sentence: str
    in_force: str = ""
    now: AwareDatetime
    collected_at: AwareDatetime | None = None
    interval_seconds: float
    next_run_at: AwareDatetime | None = None
    score_range: float | None = None
    deviation: float | None = None


class BrokerView(View):
    """One broker.

    Attributes:
        label: the shortest part of its name that tells it from the others.
        score: None without a report.
        resources: weighted usage by resource; the largest is the score.
        deciding: the resource that makes the score; empty without a report.
        lowest, highest: score within the last half hour.
        after: predicted score after the plan; None where the plan does not touch it.
        left_out: why it is neither source nor destination; empty when it takes part.
        band: that of its pair: `calm`, `low` or `high`.
        partner: the colder broker of its pair, of the hotter one alone; `gap` between them.
        drained: by whom, since when and why; empty when it is not.
        average: moving average of its load that the strategy keeps, percent; `average_throughput` likewise, bytes/s.
    """

    name: str
    label: str
    score: float | None
    resources: dict[str, float] = {}
    deciding: str = ""
    lowest: float | None = None
    highest: float | None = None
    after: float | None = None
    left_out: str = ""
    band: str = "calm"
    partner: str = ""
    gap: float | None = None
    drained: str = ""
    average: float | None = None
    average_throughput: float | None = None
    msg_throughput: float = 0.0
    bundles: int = 0


class HitsView(View):
    """Hits collected, and how many are needed."""

    have: int
    need: int


class PairView(View):
    """A pair, or with another strategy a broker, that was looked at.

    Attributes:
        band: `calm`, `low` or `high`: how its gap stands to the thresholds.
        hits: by `low` and `high`; empty for strategies that count none.
        seconds_to_fire: from the sample, if the gap stays; None when it does not count.
        reason: reason code; `meaning` in words.
    """

    number: int
    source: str
    destination: str = ""
    gap: float | None = None
    band: str = "calm"
    hits: dict[str, HitsView] = {}
    fired: bool = False
    seconds_to_fire: float | None = None
    reason: str
    meaning: str
    explanation: str = ""


class FindingView(View):
    """What validation found, in plain words."""

    reason: str
    effect: str
    count: int
    worst: tuple[str, ...]
    meaning: str
    action: str


class Links(View):
    """Where more is to be read; paths on the web server, empty where there is nothing."""

    dag: str = ""
    run: str = ""
    log: str = ""
    validation: str = ""


class ShownQuestion(View):
    """What Airflow asks of a person: whether the plan that waits is carried out.

    Attributes:
        dag, run, task: that asks.
        hash: of the plan.
        until: when nobody may answer any more.
    """

    dag: str
    run: str
    task: str
    hash: str
    until: AwareDatetime


class Acts(View):
    """What the user may do: DAGs of which a run may be started, empty where that is not allowed.

    Attributes:
        control: the DAG that pauses, resumes, skips, stops and closes the circuit breaker.
        rebalance: the DAG that balances.
        question: that the user may answer; None when nothing is asked, or they may not.
        paused: whether a person has paused the cluster.
        skips: whether a person has the next run skipped.
        breaker: whether the circuit breaker is open.
    """

    control: str = ""
    rebalance: str = ""
    question: ShownQuestion | None = None
    paused: bool = False
    skips: bool = False
    breaker: bool = False


class Overview(View):
    """The page of one cluster.

    Attributes:
        run_id: the DAG run whose files these are; empty when there is none yet.
        folder: name of their folder.
        sampled_at: when their sample was taken.
        of_one_run: the cluster as that run saw it, and not as it is now.
        middle: mean score; None when no broker was judged.
        lines: thresholds.
        pairs: those that were looked at, the largest gap first.
        close_pairs: how many more pairs are close enough.
        firing: what pairs do once they have their hits, `fires` or `would fire`; empty when nobody knows when.
        hits: of the whole cluster, under a strategy that counts these.
        plan: the newest plan that moves something, if it is of the newest run.
        awaiting: the plan that waits for a person, if it is another one.
        last: the last run that moved something, if the newest one does not.
        validated: whether validation was reached.
    """

    version: int = VERSION
    run_id: str = ""
    folder: str = ""
    sampled_at: AwareDatetime | None = None
    of_one_run: bool = False
    status: Status
    middle: float | None = None
    lines: tuple[Line, ...] = ()
    brokers: tuple[BrokerView, ...] = ()
    pairs: tuple[PairView, ...] = ()
    close_pairs: int = 0
    firing: str = ""
    hits: HitsView | None = None
    plan: PlanView | None = None
    awaiting: PlanView | None = None
    last: PlanView | None = None
    findings: tuple[FindingView, ...] = ()
    validated: bool = False
    links: Links = Links()
    acts: Acts = Acts()


class RunAnswer(View):
    """What became of a run that was started with a button.

    Attributes:
        state: Airflow's, of the run.
        text: what is to be told; while it is under way a verb's phrase.
        next_dag, next_run: the run that it started, to be followed; empty when it started none.
    """

    state: str
    text: str
    next_dag: str = ""
    next_run: str = ""
