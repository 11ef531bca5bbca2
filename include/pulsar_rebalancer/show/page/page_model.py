"""The document behind a cluster's page: one typed model, read by a browser.

The browser computes nothing. Scores are in percent, gaps and score ranges in percentage points, times in UTC.
"""

from __future__ import annotations

from pydantic import AwareDatetime

from pulsar_rebalancer.show.page.plan_view import PlanView
from pulsar_rebalancer.show.page.view import VERSION, State, Tone, View
from pulsar_rebalancer.strategies.shedders.profile import Line


class Status(View):
    """The strip at the top of the page.

    Attributes:
        pairing: True if the strategy pairs brokers.
        sentence: why the rebalancer acts or does not act.
        in_force: people's orders that are in force, as a sentence; empty when there are none.
        collected_at: time of the newest sample; None if there is none.
        score_range, deviation: range and standard deviation of the compared scores; None if no broker is compared.
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
        label: a short unique part of its name.
        score: None without a load report.
        resources: weighted usage by resource, percent; the largest is the score.
        deciding: the resource with the largest weighted usage; empty without a load report.
        lowest, highest: score within the last half hour.
        after: predicted score after the plan; None if the plan does not touch the broker.
        left_out: why the broker is neither source nor destination; empty if it takes part.
        band: the band of its pair: `calm`, `low` or `high`.
        partner, gap: the colder broker of its pair and the gap to it; set only on the hotter broker.
        drained: who drains the broker, since when and why; empty if it is not drained.
        average, average_throughput: moving averages that the strategy keeps, in percent and bytes/s.
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
    """Hits counted so far, and hits needed to fire."""

    have: int
    need: int


class PairView(View):
    """A judged pair; under a strategy without pairs, a judged broker.

    Attributes:
        band: the highest threshold that its gap reaches, `low` or `high`; else `calm`.
        hits: by `low` and `high`; empty if the strategy counts no hits.
        seconds_to_fire: time from the sample until the pair fires if the gap stays; None if no hits are counted.
        meaning: the reason code in words.
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
    """A validation finding in plain words."""

    reason: str
    effect: str
    count: int
    worst: tuple[str, ...]
    meaning: str
    action: str


class Links(View):
    """Links to other pages: paths on the web server. An empty path means that there is no link."""

    dag: str = ""
    run: str = ""
    log: str = ""
    validation: str = ""


class ShownQuestion(View):
    """Airflow's question whether to carry out the waiting plan.

    Attributes:
        dag, run, task: ids of the task that asks.
        hash: the plan's hash.
        until: deadline for the answer.
    """

    dag: str
    run: str
    task: str
    hash: str
    until: AwareDatetime


class Acts(View):
    """What the user may do: ids of the DAGs that they may start; an id is empty if they may not.

    Attributes:
        control: the DAG that pauses, resumes or stops a cluster, skips a run, or closes the circuit breaker.
        rebalance: the DAG that balances.
        question: the open question; None if there is none, or the user may not answer it.
        paused: True if a person has paused the cluster.
        skips: True if a person has ordered that the next run be skipped.
        breaker: True if the circuit breaker is open.
        paused_dags: DAGs that the user may start but that are paused in Airflow, so a run would wait.
    """

    control: str = ""
    rebalance: str = ""
    question: ShownQuestion | None = None
    paused: bool = False
    skips: bool = False
    breaker: bool = False
    paused_dags: tuple[str, ...] = ()


class Overview(View):
    """The page of one cluster.

    Attributes:
        run_id: the DAG run shown; empty when there is none yet.
        folder: name of the run's folder.
        sampled_at: when the run took its sample.
        of_one_run: True if the page shows the cluster as that run saw it, not as it is now.
        middle: mean score; None when no broker was compared.
        lines: thresholds to draw.
        pairs: pairs whose gap counts, and pairs that fired or wait; the largest gap first.
        close_pairs: number of pairs not listed.
        firing: what pairs do once they have their hits: `fires` or `would fire`; empty when the time is unknown.
        hits: the whole cluster's hits; None if the strategy does not count them.
        plan: the plan of the run shown, if the run moves bundles or considered any.
        awaiting: the plan that waits for approval, if it is not the plan of the run shown.
        last: the last plan that moved something, if `plan` is None.
        validated: True if the run got as far as validation.
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
    """The outcome of a run that was started with a button.

    Attributes:
        state: Airflow's state of the run.
        text: the text to show; a verb phrase while the run is under way.
        next_dag, next_run: ids of the DAG and run that this run started, to follow next; empty if it started no run.
    """

    state: str
    text: str
    next_dag: str = ""
    next_run: str = ""
