"""Reasons that lie in what a run is given: settings, brokers' answers, state, figures, files."""

from __future__ import annotations

from pulsar_rebalancer.reasons.reason import Effect, Reason

_B, _H, _Q, _W, _V = Effect.BLOCK, Effect.HOLD, Effect.QUARANTINE, Effect.WARN, Effect.VERDICT

INPUTS = (
    # settings
    Reason(
        "wrong_setting",
        _B,
        "A setting is unknown, of the wrong type or out of range.",
        "Correct the key that the message names; the clusters file can overrule what comes from the brokers.",
    ),
    Reason(
        "connection_not_found",
        _B,
        "Airflow found no connection of the name in spark_connection, or its secrets backend did not answer.",
        "Add the connection, or look at the secrets backend.",
        passing=True,
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
        _Q,
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
        "foreign_service_url",
        _V,
        "The brokers name no binary address, or one on a host that is none of theirs; no credentials were sent there.",
        "Set the connection's service_url to an address that you trust.",
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
        "excluded_brokers names a broker that the cluster does not list: it is down, or misspelt and excludes nobody.",
        "Nothing if the broker is down for a while; else correct the name: brokerIds are advertisedAddress:port.",
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
)
