"""Every reason code, what it means and what to do: the one list that code, README and alerts share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Effect(StrEnum):
    """What a reason does to the run."""

    BLOCK = "block"  # the data cannot be judged: the run fails, nothing is decided
    HOLD = "hold"  # decided and explained, but the gate stays closed
    QUARANTINE = "quarantine"  # this broker or bundle is neither source nor destination
    WARN = "warn"  # said, nothing else
    VERDICT = "verdict"  # why a pair, a bundle or a move was treated as it was


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason code.

    Attributes:
        code: the stable name.
        effect: what it does to the run.
        meaning: one sentence, what was seen.
        action: one sentence, what to do about it; empty when nothing has to be done.
        passing: it may be gone a moment later, so what it stopped is tried again.
    """

    code: str
    effect: Effect
    meaning: str
    action: str = ""
    passing: bool = False


_B, _H, _Q, _W, _V = Effect.BLOCK, Effect.HOLD, Effect.QUARANTINE, Effect.WARN, Effect.VERDICT

_ALL = (
    # settings
    Reason(
        "wrong_setting",
        _B,
        "A setting is unknown, of the wrong type or out of range.",
        "Correct the key that the message names.",
    ),
    Reason(
        "contradiction",
        _B,
        "Two settings exclude each other.",
        "Change one of the keys that the message names.",
    ),
    Reason("mode_off", _V, "The cluster's mode is off.", "Set another mode in the clusters file."),
    # admin REST API
    Reason(
        "unreachable",
        _Q,
        "A broker did not accept a connection.",
        "Check that the broker runs and that its address is reachable from the workers.",
        passing=True,
    ),
    Reason(
        "timeout",
        _Q,
        "A broker did not answer in time.",
        "Look at the broker's load and at the connection's time-out.",
        passing=True,
    ),
    Reason(
        "certificate_refused",
        _B,
        "A broker's certificate could not be verified, so nothing was sent to it.",
        "Check the connection's ca_file and the host name in the broker's certificate.",
    ),
    Reason(
        "unauthorized",
        _B,
        "The credentials were refused (401).",
        "Give the connection a valid token of a super-user.",
    ),
    Reason(
        "forbidden",
        _B,
        "The credentials lack the right (403, or 401 with a reason).",
        "The role needs to be in the brokers' superUserRoles.",
    ),
    Reason("not_found", _V, "Pulsar does not know the namespace, bundle, topic or broker (404)."),
    Reason("conflict", _V, "The destination is not an active broker (409).", "Nothing: the next run plans anew."),
    Reason(
        "bad_range",
        _V,
        "The bundle range no longer exists, it was split (412).",
        "Nothing: the next run sees the new bundles.",
    ),
    Reason(
        "server_error",
        _V,
        "The broker failed on the request (5xx).",
        "Look into the broker's log.",
        passing=True,
    ),
    Reason(
        "no_load_report",
        _B,
        "The load manager gives no load report.",
        "Only brokers with loadManagerClassName ModularLoadManagerImpl or ExtensibleLoadManagerImpl can be balanced.",
    ),
    Reason(
        "client_missing",
        _B,
        "Brokers under the extensible load manager are to be listened to, and Pulsar's client is not installed.",
        "Install pulsar-rebalancer[extensible] on the workers, or set listen_seconds to 0.",
    ),
    Reason(
        "redirect_loop",
        _V,
        "Brokers redirected the request in a circle.",
        "Look at the brokers' advertised addresses and the leader's health.",
        passing=True,
    ),
    Reason(
        "foreign_redirect",
        _V,
        "A redirect led to an address that is no broker of this cluster; nothing was sent there.",
        "Add the broker to the connection's address map, or correct its advertised address.",
    ),
    Reason(
        "bad_answer",
        _V,
        "The answer was no JSON, too large, or not of the documented shape.",
        "Check that the address is a Pulsar broker and not a proxy.",
        passing=True,
    ),
    Reason(
        "read_only",
        _V,
        "The connection is read-only: a request that is not a GET was refused before it was sent.",
        "Remove read_only from the connection to let the rebalancer act.",
    ),
    Reason(
        "setting_not_taken",
        _B,
        "Not every broker runs with the value that was set.",
        "Look at the brokers that the message names, then trigger the DAG again: setting it twice is harmless.",
    ),
    # state
    Reason(
        "state_lost",
        _B,
        "The state store is empty although runs were committed before.",
        "Restore the state from its last copy, or reset it.",
    ),
    Reason("state_version", _B, "The state was written by another version.", "Upgrade, or reset the state."),
    Reason(
        "stale_plan",
        _B,
        "The state moved on after this plan was made.",
        "Nothing: the plan is void, the next run plans anew.",
    ),
    # validation
    Reason(
        "too_few_brokers",
        _B,
        "Fewer than two brokers can be judged.",
        "Check the brokers; one broker cannot be balanced.",
    ),
    Reason(
        "report_missing",
        _Q,
        "A listed broker gave no load report.",
        "Check the broker; the reason beside it says how the request failed.",
    ),
    Reason(
        "report_stale",
        _Q,
        "A load report is older than brokers write at the latest.",
        "Check the broker's clock and its connection to the metadata store.",
    ),
    Reason(
        "not_a_number",
        _Q,
        "A figure of a load report is missing or not a number.",
        "Check the broker's version and its load report.",
    ),
    Reason("negative_figure", _Q, "A figure of a load report is negative.", "Check the broker's load report."),
    Reason(
        "clock_ahead",
        _Q,
        "A load report comes from the future: the broker's clock is ahead of the workers'.",
        "Synchronise the clocks of brokers and workers.",
    ),
    Reason(
        "wrong_broker",
        _Q,
        "Another broker's load report came in this broker's place.",
        "Map the broker to an address of its own, not to a service or proxy before several brokers.",
    ),
    Reason(
        "over_limit",
        _W,
        "A resource is used far beyond its limit.",
        "Check the broker's limits: CPU quota, memory settings, loadBalancerOverrideBrokerNicSpeedGbps.",
    ),
    Reason(
        "zero_limit",
        _W,
        "The limit of a resource is zero or not measured, so that it scores 0 however busy it is.",
        "Set loadBalancerOverrideBrokerNicSpeedGbps where the speed of the network cards cannot be read.",
    ),
    Reason(
        "listed_twice",
        _W,
        "The cluster lists a broker more than once; it was taken once.",
        "Check for two brokers with the same advertised address and port.",
    ),
    Reason(
        "unknown_broker",
        _W,
        "excluded_brokers names a broker that the cluster does not list, so that it excludes nobody.",
        "Correct or remove the name; brokerIds are advertisedAddress:port.",
    ),
    Reason(
        "sums_disagree",
        _W,
        "A broker's traffic is not the sum of its bundles'; the amount to move is judged by the broker's.",
        "Nothing if it is gone in the next run; else check the broker's load report.",
    ),
    Reason(
        "bad_bundle_name",
        _Q,
        "A bundle's name is not of the form tenant/namespace/0x…_0x….",
        "Check the broker's load report.",
    ),
    Reason(
        "suite_failed",
        _B,
        "An expectation could not be evaluated, so nothing is known to be sound.",
        "Correct the suite or the expectation that the detail names.",
    ),
    Reason(
        "just_started",
        _Q,
        "The broker has fewer than two host samples since its start, so it looks idle.",
        "Nothing: it takes part after two host samples.",
    ),
    Reason(
        "two_owners",
        _Q,
        "Two brokers report the same bundle.",
        "Nothing if it is gone in the next run (normal for one interval after a move).",
    ),
    Reason(
        "too_many_quarantined",
        _B,
        "More brokers were left out than max_quarantined_brokers allows.",
        "Mend the brokers named, or raise the limit.",
    ),
    Reason(
        "builtin_shedding_on",
        _H,
        "Pulsar's own shedding is on: two balancers would fight.",
        "Run pulsar_handover__<cluster> with the action take_over, or set loadBalancerSheddingEnabled to false.",
    ),
    Reason(
        "even_distribution_on",
        _W,
        "loadBalancerDistributeBundlesEvenlyEnabled is on; a planned destination is honoured all the same.",
    ),
    Reason(
        "leader_unread",
        _H,
        "There is no leader, or its configuration cannot be read: Pulsar's own shedding may be on.",
        "Nothing while a leader is elected; else check that broker and the role's rights.",
    ),
    Reason(
        "brokers_disagree",
        _W,
        "Brokers run with different load-balancer settings; the leader's were taken.",
        "Give all brokers the same settings.",
    ),
    Reason(
        "policy_unreadable",
        _H,
        "Isolation policies could not be read or parsed, so no bundle is known to be free.",
        "Check the policy that the message names and the role's rights.",
    ),
    Reason(
        "policy_unclear",
        _W,
        "A policy could not be read, or no active broker serves it; the namespaces that it concerns stay.",
        "Check the policy that the message names and the role's rights.",
    ),
    # files
    Reason("file_missing", _B, "A file of the run is missing.", "Check that every worker sees the storage root."),
    Reason(
        "file_damaged",
        _B,
        "A file of the run cannot be read.",
        "Clear the run's collect task; look at the disk.",
    ),
    Reason("file_version", _B, "A file was written by another version.", "Clear the run's collect task."),
    Reason(
        "plan_changed",
        _B,
        "A plan's files were altered after it was made.",
        "Nothing is carried out; find out who wrote to the storage root.",
    ),
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

REASONS: dict[str, Reason] = {r.code: r for r in _ALL}
"""Reason codes by name."""

PASSING = frozenset(code for code, reason in REASONS.items() if reason.passing)
"""Reason codes that may be gone a moment later."""
