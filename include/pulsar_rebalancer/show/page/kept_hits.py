"""What a strategy keeps between runs in addition to the hits of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.run.plan import read_state
from pulsar_rebalancer.show.page.page_model import HitsView
from pulsar_rebalancer.strategies.kept import KeptState, ShedderState
from pulsar_rebalancer.strategies.shedders.registry import profile_shown

if TYPE_CHECKING:
    from pulsar_rebalancer.show.page.recent_runs import Run


def kept_by(run: Run) -> ShedderState:
    """Return what the strategy keeps after a run; empty when it cannot be read."""
    try:
        state = read_state(run.folder)
        return KeptState.parse(state.hits, state.kept).shedder
    except (RebalancerError, AttributeError, TypeError):
        return ShedderState()


def cluster_hits(run: Run, kept: ShedderState) -> HitsView | None:
    """Return the hits of the whole cluster; None under a strategy that counts none."""
    settings = run.request.resolved.settings
    need = profile_shown(settings).cluster_hits(settings)
    return None if need is None or run.summary is None else HitsView(have=kept.cluster_hits, need=need)
