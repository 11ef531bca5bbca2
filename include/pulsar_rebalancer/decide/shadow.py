"""The decision of the shadow: a second strategy that decides on every counted sample and moves nothing."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.decide import pipeline
from pulsar_rebalancer.strategies.left_out import left_out_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from pulsar_rebalancer.decide.pipeline import RunContext, RunDecision
    from pulsar_rebalancer.decide.run_bundles import RunBundles
    from pulsar_rebalancer.decide.run_input import RunInput
    from pulsar_rebalancer.decide.run_lesson import RunLesson

_log = logging.getLogger(__name__)


class ShadowDecision(NamedTuple):
    """The shadow's input and decision. The decision is None if the strategy failed; `error` then says why."""

    context: RunContext
    decided: RunDecision | None = None
    error: str = ""


def decide(
    run: RunInput, lesson: Callable[[], RunLesson], bundles: Callable[[pa.Table], RunBundles]
) -> ShadowDecision | None:
    """Return the shadow's decision; None if there is no shadow, or the sample does not count.

    An error in the strategy or in what it learns does not affect the run: the shadow then has no plan and loses its
    hits.

    Args:
        lesson: function that waits for, and returns, the figures learned up to this sample.
        bundles: function that takes the bundles' costs and returns the run's bundles. They have a reader of their own,
            because each strategy announces the brokers that it needs.
    """
    if run.shadow is None:
        return None
    context = run.shadow
    try:
        learned = lesson()
        context = replace(context, lesson=learned.lesson)
        brokers = run.brokers_without(left_out_of(run, context.settings))
        return ShadowDecision(context, pipeline.decide(context, brokers, bundles(learned.costs)))
    except Exception as error:
        _log.exception("shadow %s failed", context.settings.strategy)
        return ShadowDecision(context, error=f"{type(error).__name__}: {error}"[:300])
