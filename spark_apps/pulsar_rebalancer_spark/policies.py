"""Why policies forbid bundles to go to their pair's colder broker (see `strategies.placement.policy_filter`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pulsar_rebalancer.run.bundle_columns import COLUMNS, Bundles
from pulsar_rebalancer.strategies.placement.policy_filter import PolicyFilter
from pulsar_rebalancer_spark.source_bundles import FREE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pulsar_rebalancer.decide.pipeline import RunContext
    from pulsar_rebalancer.reasons import Reason
    from pulsar_rebalancer.run.tables import BrokerSample
    from pulsar_rebalancer.strategies.sample import Decision

_ANY_RANGE = "/0x00000000_0xffffffff"


def forbidden(
    context: RunContext,
    brokers: Sequence[BrokerSample],
    served: Mapping[tuple[str, str], int],
    giving: Iterable[Decision],
) -> dict[tuple[str, str], Reason]:
    """Return why a namespace's bundles must not leave a source, by source and namespace, `FREE` for those under none.

    The rules are asked once per source and namespace under a policy, never per bundle.

    Args:
        context: what the run starts from.
        brokers: all that the cluster lists.
        served: how many bundles of a namespace under a policy a broker reports, by broker and namespace.
        giving: pairs that move something.
    """
    destinations = {pair.source: pair.destination or "" for pair in giving}
    # Groups are counted on all brokers, other policies on the sources.
    looked_at = [each for each in served if each[0] in destinations or each[1] in context.policies.groups]
    # Whether a broker has one bundle of a namespace or more is all that the rules ask.
    some = [each for each in looked_at for _ in range(min(served[each], 2))]
    held = [{"broker": broker, "bundle": name + _ANY_RANGE} for broker, name in some]
    bundles_held = Bundles(pa.Table.from_pylist(held, schema=COLUMNS))
    policies = PolicyFilter(context.policies, brokers, bundles_held, context.settings)
    asked = [(source, FREE) for source in destinations]
    asked += [each for each in looked_at if each[0] in destinations]
    answers = {
        (source, name): policies.forbids(name + _ANY_RANGE, source, destinations[source])
        for source, name in sorted(asked)
    }
    return {key: reason for key, reason in answers.items() if reason is not None}
