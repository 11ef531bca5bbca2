"""Reasons that a run gives for what it did: counting, brokers and pairs, bundles, gate, moves, the run itself."""

from __future__ import annotations

from pulsar_rebalancer.reasons.reason import Effect, Reason

_W, _V = Effect.WARN, Effect.VERDICT

VERDICTS = (
    # counting
    Reason("counted", _V, "The sample counted."),
    Reason(
        "too_soon",
        _V,
        "Less than half an interval has passed since the last counted sample: nothing was counted.",
    ),
    Reason(
        "gap",
        _W,
        "The last counted sample is too old, or in the future, for hits to be consecutive: counters were cleared.",
        "Look why runs were missing, or at the workers' clocks.",
    ),
    Reason("forced", _V, "A forced run acts without hits and counts none."),
    Reason("other_thresholds", _V, "A run with thresholds of its own counts no hits."),
    Reason("strategy_changed", _W, "The strategy differs from the one that kept the state: it starts anew."),
    # brokers and pairs
    Reason("below_threshold", _V, "The broker's figure does not reach the bound beside it."),
    Reason("not_overloaded", _V, "The broker's load is below overloaded_threshold."),
    Reason("not_busiest", _V, "UniformLoadShedder sheds from the busiest broker alone."),
    Reason(
        "single_bundle",
        _V,
        "The broker should shed, but has a single bundle: elsewhere it would be as hot.",
        "Split the bundle, or give its namespace more bundles.",
    ),
    Reason("balanced", _V, "The loads are in balance."),
    Reason("hit_count", _V, "The loads are out of balance, not yet for enough runs in a row."),
    Reason("cool_down", _V, "A broker reported too soon after its last unload: its load is not known yet."),
    Reason(
        "outdated",
        _V,
        "The broker's report is older than load_data_ttl_seconds and no part of the mean.",
        "Check the broker's clock and the metadata store.",
    ),
    Reason("no_load_data", _V, "No broker gives a report: there is no load to compare.", "Check the brokers."),
    Reason(
        "no_top_bundles",
        _V,
        "The broker has no top bundle that may be looked at.",
        "Look at its traffic, at policies and at excluded namespaces.",
    ),
    Reason("cap_brokers", _V, "max_brokers_per_run brokers have shed.", "Nothing: the next run goes on."),
    Reason("below_low", _V, "The pair's gap is below the low threshold: balanced."),
    Reason("hits_low", _V, "The gap is above the low threshold, not yet often enough."),
    Reason("hits_high", _V, "The gap is above the high threshold, not yet often enough."),
    Reason(
        "fired",
        _V,
        "Bundles are to be moved: the broker or pair was over its threshold, often enough where hits are counted.",
    ),
    Reason(
        "below_minimum",
        _V,
        "Less than the minimum would have to move; AvgShedder's hits start anew.",
    ),
    Reason(
        "no_fitting_bundle", _V, "Fired, but no bundle fits into the amount to be moved; AvgShedder's hits start anew."
    ),
    Reason(
        "no_allowed_bundle",
        _V,
        "Fired, but policies or placement keep the bundles that might fit where they are; AvgShedder's hits start "
        "anew.",
        "See the bundles' reasons in the table moves.",
    ),
    Reason("below_force", _V, "The gap is below the one from which the forced run was told to act."),
    Reason("middle", _V, "The broker in the middle of an odd number has no partner."),
    # bundles
    Reason("taken", _V, "The bundle is moved."),
    Reason("over_remaining", _V, "The bundle carries more than what is left to move."),
    Reason("target_reached", _V, "The bundles taken before carry what is to be moved."),
    Reason("not_reached", _V, "The walk over the broker's bundles ended before this one."),
    Reason("last_bundle", _V, "One of the broker's top bundles stays in any case."),
    Reason("cap_shedding", _V, "The cap of max_unload_bundles was reached."),
    Reason(
        "namespace_policy",
        _V,
        "The namespace is under a policy and shed_policy_bundles is off.",
    ),
    Reason("no_traffic", _V, "The bundle carries no traffic of the measure that counts."),
    Reason("recently_unloaded", _V, "The bundle was moved within the grace period."),
    Reason("system_namespace", _V, "System, heartbeat and SLA namespaces are never moved."),
    Reason("namespace_excluded", _V, "The namespace is excluded by a setting."),
    Reason(
        "policy_unknown",
        _V,
        "It could not be read which brokers the bundle's namespace may be on.",
        "See policy_unclear or policy_unreadable in the run's validation.",
    ),
    Reason(
        "policy_forbids",
        _V,
        "Isolation policies leave the bundle no other broker, or not the planned one.",
        "Nothing, unless unwanted: check the policy's brokers.",
    ),
    Reason(
        "anti_affinity",
        _V,
        "The bundle's anti-affinity group is spread evenly, would be spread worse, or has a bundle that moves already.",
    ),
    Reason("too_many_topics", _V, "The planned broker has more than max_broker_topics topics, others have not."),
    Reason(
        "no_destination",
        _V,
        "No broker that takes part in the run may take the bundle.",
        "Look why brokers were left out.",
    ),
    Reason("same_broker", _V, "Placement chose the broker that the bundle is on."),
    Reason("bundle_quarantined", _V, "Validation left the bundle out."),
    Reason("cap_run", _V, "The cap of bundles per run was reached."),
    Reason("cap_broker", _V, "The cap of bundles per broker was reached."),
    Reason(
        "cap_waves",
        _V,
        "The same hash range is moved in too many namespaces at once.",
        "Nothing: the next firing takes it.",
    ),
    Reason("broker_quarantined", _V, "Validation left the broker out."),
    Reason(
        "no_persistent_topics",
        _V,
        "The broker takes no persistent topics, other brokers do: no bundle may go there, so AvgShedder pairs it with "
        "none.",
    ),
    Reason("broker_excluded", _V, "The broker is excluded by a setting."),
    # gate
    Reason("open", _V, "The gate is open: the plan is carried out."),
    Reason("blocked", _V, "Validation stopped the run.", "See the block reasons of the run."),
    Reason("unfinished", _V, "The run ended before the gate was asked.", "See the log of the task that failed."),
    Reason("nothing_to_do", _V, "The plan moves nothing."),
    Reason("observe", _V, "Mode observe: decided and explained, nothing is moved."),
    Reason(
        "paused",
        _V,
        "The cluster is paused.",
        "Wait for the end of the pause, or remove it from the clusters file.",
    ),
    Reason("on_hold", _V, "Validation holds: acting would be unsafe.", "See the hold reasons of the run."),
    Reason("plan_too_old", _V, "The plan is older than max_plan_age_seconds.", "Nothing: the next run plans anew."),
    Reason(
        "not_recorded",
        _V,
        "The state store holds another plan than this one.",
        "Nothing: only the recorded plan is carried out.",
    ),
    # moves
    Reason("moved", _V, "The bundle is owned by its planned broker."),
    Reason("already_there", _V, "The bundle was on its planned broker before: nothing was unloaded."),
    Reason("owner_changed", _V, "Another broker than the planned source owns the bundle: left alone."),
    Reason(
        "no_topic",
        _V,
        "No loaded topic of the bundle was found, so placement cannot be triggered: left alone.",
    ),
    Reason("destination_gone", _V, "The planned broker is no longer active: left alone."),
    Reason(
        "astray",
        _V,
        "The bundle landed on another broker, also after the retries.",
        "Nothing: it is in the grace period; look at the leader's log if it repeats.",
    ),
    Reason(
        "unowned",
        _V,
        "The bundle was unloaded, and no broker owned it within the time-out.",
        "Nothing: its clients' next lookup places it; look at the leader's log if it repeats.",
    ),
    Reason(
        "unknown_owner",
        _V,
        "The bundle was unloaded, and it could not be read which broker owns it.",
        "See the error beside it; the next run reads ownership anew.",
    ),
    Reason(
        "unexpected_error",
        _V,
        "The move broke off before anything was unloaded, for a reason that has no code.",
        "See the traceback in the task's log.",
        passing=True,
    ),
    Reason("not_attempted", _V, "The move was planned but not tried before the run ended."),
    Reason(
        "interrupted",
        _V,
        "The run ended while the bundle's wave was under way; it counts as recently unloaded.",
    ),
    # runs
    Reason("task_failed", _V, "A task failed for another reason than those listed here.", "See the task's log."),
    Reason(
        "run_too_long",
        _V,
        "The run took longer than the interval.",
        "See which task takes long; give it more room, or lengthen interval_seconds.",
    ),
    Reason(
        "no_run",
        _V,
        "No run has come to its end for alert_after_intervals intervals.",
        "See whether the DAG is paused, a run hangs, or the workers are busy.",
    ),
)
