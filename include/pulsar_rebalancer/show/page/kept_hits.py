"""What strategies beside AvgShedder keep from run to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.config.enums import Strategy
from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.run.plan import read_state
from pulsar_rebalancer.show.page.page_model import HitsView
from pulsar_rebalancer.strategies.kept import KeptState, ShedderState

if TYPE_CHECKING:
    from pulsar_rebalancer.show.page.recent_runs import Run


def kept_by(run: Run) -> ShedderState:
    """Return what the strategy of a run keeps after it; nothing when that cannot be read."""
    try:
        state = read_state(run.folder)
        return KeptState.parse(state.hits, state.kept).shedder
    except (RebalancerError, AttributeError, TypeError):
        return ShedderState()


def cluster_hits(run: Run, kept: ShedderState) -> HitsView | None:
    """Return the hits of the whole cluster; None under a strategy that does not count them."""
    settings = run.request.resolved.settings
    if settings.strategy is not Strategy.TRANSFER or run.summary is None:
        return None
    # It sheds once they are more than the setting.
    return HitsView(have=kept.cluster_hits, need=settings.hit_count_transfer + 1)
