"""How many bundles or brokers have which reason, in words; a code appears only next to its meaning."""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_rebalancer.reasons.reason import Reason

_WORDS = {
    Reason.OVER_REMAINING: "did not fit",
    Reason.BELOW_SHARE: "too small",
    Reason.BELOW_GAIN: "would gain too little",
    Reason.WOULD_OVERSHOOT: "would overshoot",
    Reason.NOT_REACHED: "not needed",
    Reason.NO_TRAFFIC: "without traffic",
    Reason.RECENTLY_UNLOADED: "moved recently",
    Reason.DESTINATION_KEPT: "moved recently and still remembered by the leader",
    Reason.SYSTEM_NAMESPACE: "of the system",
    Reason.NAMESPACE_EXCLUDED: "excluded",
    Reason.BUNDLE_EXCLUDED: "excluded",
    Reason.BROKER_EXCLUDED: "excluded",
    Reason.BUNDLE_QUARANTINED: "left out by validation",
    Reason.BROKER_QUARANTINED: "on a broker that validation left out",
    Reason.JUST_STARTED: "just started",
    Reason.BAD_REPORT_TIME: "with a report of the wrong time",
    Reason.BAD_VALUE: "with a wrong value",
    Reason.TRAFFIC_IN_DOUBT: "with doubtful traffic",
    Reason.POLICY_UNKNOWN: "with unknown policies",
    Reason.POLICY_FORBIDS: "kept by isolation policies",
    Reason.ANTI_AFFINITY: "kept by anti-affinity",
    Reason.TOO_MANY_TOPICS: "kept by the limit of topics",
    Reason.NO_DESTINATION: "without a destination",
    Reason.SAME_BROKER: "best where placed",
    Reason.TO_BE_SPLIT: "split instead",
    Reason.CAP_RUN: "over the cap per run",
    Reason.CAP_BROKER: "over the cap per broker",
    Reason.CAP_NAMESPACE: "over the cap per namespace",
    Reason.CAP_BYTES: "over the cap of bytes per run",
    Reason.CAP_WAVES: "over the limit of waves",
    Reason.WOULD_OVERLOAD: "would overload a broker",
    Reason.DRAINING: "drained",
    Reason.ROLLING: "held by the rolling restart",
    Reason.NO_TOPIC: "without topics",
    Reason.UNKNOWN_NAME: "not found",
    Reason.OWNER_CHANGED: "moved elsewhere since",
    Reason.DESTINATION_GONE: "without its destination",
    Reason.MOVED: "moved",
    Reason.ALREADY_THERE: "already there",
    Reason.ASTRAY: "on another broker than planned",
    Reason.UNKNOWN_OWNER: "without a known owner",
    Reason.TASK_FAILED: "failed",
    Reason.NOT_ATTEMPTED: "not tried",
    Reason.INTERRUPTED: "interrupted",
    Reason.STOPPED: "stopped",
    Reason.STATE_LOST: "stopped because the state is lost",
    Reason.BREAKER_OPEN: "stopped by the circuit breaker",
    Reason.PAUSED: "stopped by a pause",
    Reason.SERVER_ERROR: "failed on the broker",
    Reason.SPLIT: "split",
    Reason.NOT_SPLIT: "not split",
    Reason.RANGE_GONE: "gone",
}


def counted(counts: Mapping[Reason, int]) -> str:
    """Return text such as "17 did not fit, 2 excluded", the largest number first; empty without counts."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {_WORDS.get(reason, f'({reason}: {reason.meaning})')}" for reason, count in ordered)
