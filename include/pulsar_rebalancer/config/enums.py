"""Settings with a fixed set of values: modes, strategies, placements."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """The rebalancer's modes, from the most to the least restricted. A mode limits what the rebalancer may do."""

    OFF = "off"
    OBSERVE = "observe"
    APPROVE = "approve"
    AUTO = "auto"

    @property
    def rank(self) -> int:
        """Return the mode's position in the list above. A manual run may lower the mode, but never raise it."""
        return list(Mode).index(self)

    @property
    def moves(self) -> bool:
        """Return whether this mode moves bundles, with or without a person's approval."""
        return self in (Mode.APPROVE, Mode.AUTO)


class Strategy(StrEnum):
    """Shedding strategies: Pulsar's, each named after its class, and GainShedder, which is not part of Pulsar."""

    AVG = "AvgShedder"
    THRESHOLD = "ThresholdShedder"
    OVERLOAD = "OverloadShedder"
    UNIFORM = "UniformLoadShedder"
    TRANSFER = "TransferShedder"
    GAIN = "GainShedder"


DEFAULT_STRATEGY = Strategy.AVG.value


class Placement(StrEnum):
    """Pulsar's placement strategies, each named after its class."""

    AVG = "AvgShedder"
    LEAST_RATE = "LeastLongTermMessageRate"
    LEAST_USAGE = "LeastResourceUsageWithWeight"
    ROUND_ROBIN = "RoundRobinBrokerSelector"


class SplitAlgorithm(StrEnum):
    """Pulsar's algorithms for choosing the positions at which a bundle is split."""

    RANGE = "range_equally_divide"
    TOPIC_COUNT = "topic_count_equally_divide"
    POSITIONS = "specified_positions_divide"
    FLOW = "flow_or_qps_equally_divide"


class Action(StrEnum):
    """Manual actions that a person may request."""

    UNLOAD = "unload"
    DRAIN = "drain"
    RELEASE = "release"
    FILL = "fill"
    SPLIT = "split"
    UNDO = "undo"


class Overrule(StrEnum):
    """Rules that a person may overrule in a manual plan. The plan records the person and the reason."""

    POLICIES = "policies"
    ANTI_AFFINITY = "anti_affinity"
    TOPIC_CEILING = "topic_ceiling"
    EXCLUSIONS = "exclusions"
    CAPS = "caps"
    GRACE_PERIOD = "grace_period"
    OVERLOAD = "overload"
