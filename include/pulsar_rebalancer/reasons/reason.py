"""Every reason code, what it means and what to do: the one list that code, reference pages and alerts share."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pulsar_rebalancer.reasons.traits import Effect, Trait

BLOCK, HOLD, QUARANTINE, WARN, VERDICT = Effect

HELD = Trait.NOT_BEGUN | Trait.RETRIED | Trait.NEEDS_PERSON
"""Of what lets no further bundle be begun while a plan is carried out."""


class Reason(StrEnum):
    """Why something is as it is. The value is the stable code that files, XComs and messages carry.

    An enumeration cannot be spread over modules: this one is long because the list is.

    Attributes:
        effect: what it does to the run when validation finds it.
        traits: how the code of other modules classifies it.
        meaning: one sentence, what was seen.
        action: one sentence, what to do about it; empty when nothing has to be done.
    """

    effect: Effect
    traits: Trait
    meaning: str
    action: str

    def __new__(
        cls, code: str, effect: Effect = VERDICT, traits: Trait = Trait.NONE, meaning: str = "", action: str = ""
    ) -> Self:
        """Make a member from one line of the list."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.effect, member.traits, member.meaning, member.action = effect, traits, meaning, action
        return member

    def has(self, trait: Trait) -> bool:
        """Return whether it has one of the traits given."""
        return bool(self.traits & trait)

    @classmethod
    def get(cls, code: str) -> Reason | None:
        """Return the reason of a code; None for a code of another release, or of none."""
        return cls._value2member_map_.get(code)  # type: ignore[return-value]

    @classmethod
    def having(cls, trait: Trait) -> frozenset[Reason]:
        """Return the reasons that have one of the traits given."""
        return frozenset(reason for reason in cls if reason.has(trait))

    # One line for code, effect and traits, one for the meaning, one for the action.
    # fmt: off
    # settings
    WRONG_SETTING = ("wrong_setting", BLOCK, Trait.TYPED,
        "A setting is unknown, of the wrong type or out of range.",
        "Correct the key that the message names; the clusters file can overrule what comes from the brokers.")
    CONNECTION_NOT_FOUND = ("connection_not_found", BLOCK, Trait.PASSING,
        "Airflow found no connection of the name in spark_connection, or its secrets backend did not answer.",
        "Add the connection, or look at the secrets backend.")
    SPARK_UNREACHABLE = ("spark_unreachable", BLOCK, Trait.PASSING,
        "The Spark Connect server of spark_connection did not accept a connection.",
        "Start the server, or correct host and port of the connection.")
    CONTRADICTION = ("contradiction", BLOCK, Trait.TYPED,
        "Two settings exclude each other.",
        "Change one of the keys that the message names.")
    MODE_OFF = ("mode_off", VERDICT, Trait.NONE,
        "The cluster's mode is off.",
        "Set another mode in the clusters file.")
    # admin REST API
    UNREACHABLE = ("unreachable", QUARANTINE, Trait.PASSING | Trait.NO_ANSWER,
        "A broker did not accept a connection.",
        "Check that the broker runs and that its address is reachable from the workers.")
    TIMEOUT = ("timeout", QUARANTINE, Trait.PASSING | Trait.NO_ANSWER,
        "A broker did not answer in time.",
        "Look at the broker's load and at the connection's time-out.")
    CERTIFICATE_REFUSED = ("certificate_refused", QUARANTINE,
        Trait.NO_ANSWER | Trait.NOT_UNLOADED | Trait.MAY_HAVE_PLAN | Trait.NEEDS_PERSON,
        "A broker's certificate could not be verified, so nothing was sent to it.",
        "Check the connection's ca_file and the host name in the broker's certificate.")
    UNAUTHORIZED = ("unauthorized", BLOCK, Trait.CREDENTIALS | Trait.NOT_UNLOADED | Trait.NEEDS_PERSON,
        "The credentials were refused (401).",
        "Give the connection a valid token of a super-user.")
    FORBIDDEN = ("forbidden", BLOCK, Trait.CREDENTIALS | Trait.NOT_UNLOADED | Trait.NEEDS_PERSON,
        "The credentials lack the right (403, or 401 with a reason).",
        "The role needs to be in the brokers' superUserRoles.")
    NOT_FOUND = ("not_found", VERDICT, Trait.NOT_UNLOADED | Trait.SETTLED,
        "Pulsar does not know the namespace, bundle, topic or broker (404).")
    CONFLICT = ("conflict", VERDICT, Trait.NOT_UNLOADED,
        "The destination is not an active broker (409).",
        "Nothing: the next run plans anew.")
    BAD_RANGE = ("bad_range", VERDICT, Trait.NOT_UNLOADED | Trait.SETTLED,
        "The bundle range no longer exists, it was split (412).",
        "Nothing: the next run sees the new bundles.")
    SERVER_ERROR = ("server_error", VERDICT, Trait.PASSING,
        "The broker failed on the request (5xx).",
        "Look into the broker's log.")
    NO_LOAD_REPORT = ("no_load_report", BLOCK, Trait.NONE,
        "The load manager gives no load report.",
        "Only brokers with loadManagerClassName ModularLoadManagerImpl or ExtensibleLoadManagerImpl can be balanced.")
    CLIENT_MISSING = ("client_missing", BLOCK, Trait.NONE,
        "Brokers under the extensible load manager are to be listened to, and Pulsar's client is not installed.",
        "Install pulsar-rebalancer[extensible] on the workers, or set listen_seconds to 0.")
    REDIRECT_LOOP = ("redirect_loop", VERDICT, Trait.PASSING,
        "Brokers redirected the request in a circle.",
        "Look at the brokers' advertised addresses and the leader's health.")
    FOREIGN_SERVICE_URL = ("foreign_service_url", VERDICT, Trait.NONE,
        "The brokers name no binary address, or one on a host that is none of theirs; no credentials were sent there.",
        "Set the connection's service_url to an address that you trust.")
    FOREIGN_REDIRECT = ("foreign_redirect", VERDICT, Trait.NOT_UNLOADED | Trait.MAY_HAVE_PLAN | Trait.NEEDS_PERSON,
        "A redirect led to an address that is no broker of this cluster; nothing was sent there.",
        "Add the broker to the connection's address map, or correct its advertised address.")
    BAD_ANSWER = ("bad_answer", VERDICT, Trait.PASSING,
        "The answer was no JSON, too large, or not of the documented shape.",
        "Check that the address is a Pulsar broker and not a proxy.")
    READ_ONLY = ("read_only", VERDICT, Trait.NOT_UNLOADED | Trait.NEEDS_PERSON,
        "The connection is read-only: a request that is not a GET was refused before it was sent.",
        "Remove read_only from the connection to let the rebalancer act.")
    SETTING_NOT_TAKEN = ("setting_not_taken", BLOCK, Trait.NONE,
        "Not every broker runs with the value that was set.",
        "Look at the brokers that the message names, then trigger the DAG again: setting it twice is harmless.")
    # state
    STATE_LOST = ("state_lost", BLOCK, Trait.NONE,
        "The state store is empty although runs were committed before.",
        "Restore the state from its last copy, or reset it.")
    STATE_VERSION = ("state_version", BLOCK, Trait.NONE,
        "The state was written by another version.",
        "Upgrade, or reset the state.")
    STALE_PLAN = ("stale_plan", BLOCK, Trait.NONE,
        "The state moved on after this plan was made.",
        "Nothing: the plan is void, the next run plans anew.")
    # validation
    TOO_FEW_BROKERS = ("too_few_brokers", BLOCK, Trait.NONE,
        "Fewer than two brokers can be judged.",
        "See why the others are left out; one broker cannot be balanced.")
    REPORT_MISSING = ("report_missing", QUARANTINE, Trait.NONE,
        "A listed broker gave no load report.",
        "Check the broker; the reason beside it says how the request failed.")
    REPORT_STALE = ("report_stale", QUARANTINE, Trait.NONE,
        "A load report is older than brokers write at the latest.",
        "Check the broker's clock and its connection to the metadata store.")
    NOT_A_NUMBER = ("not_a_number", QUARANTINE, Trait.NONE,
        "A figure of a load report is missing or not a number.",
        "Check the broker's version and its load report.")
    NEGATIVE_FIGURE = ("negative_figure", QUARANTINE, Trait.NONE,
        "A figure of a load report is negative.",
        "Check the broker's load report.")
    IMPOSSIBLE_FIGURE = ("impossible_figure", QUARANTINE, Trait.NONE,
        "A figure of a load report is beyond what any machine has or does.",
        "Check the broker's load report.")
    LOAD_IN_DOUBT = ("load_in_doubt", QUARANTINE, Trait.NONE,
        "The CPU has no limit or is used more than twice over, or a resource like that alone decides the score.",
        "Check the broker's CPU quota, memory settings and loadBalancerOverrideBrokerNicSpeedGbps, or a weight of 0.")
    TRAFFIC_IN_DOUBT = ("traffic_in_doubt", QUARANTINE, Trait.NONE,
        "Bundles that were left out carry more of the broker's traffic than max_quarantined_traffic allows.",
        "See why these bundles were left out; mend that, or raise the limit.")
    CLOCK_AHEAD = ("clock_ahead", QUARANTINE, Trait.NONE,
        "A load report comes from the future: the broker's clock is ahead of the workers'.",
        "Synchronise the clocks of brokers and workers.")
    WRONG_BROKER = ("wrong_broker", QUARANTINE, Trait.NONE,
        "Another broker's load report came in this broker's place.",
        "Map the broker to an address of its own, not to a service or proxy before several brokers.")
    OVER_LIMIT = ("over_limit", WARN, Trait.NONE,
        "A resource is used far beyond its limit.",
        "Check the broker's limits: CPU quota, memory settings, loadBalancerOverrideBrokerNicSpeedGbps.")
    ZERO_LIMIT = ("zero_limit", WARN, Trait.NONE,
        "The limit of a resource other than the CPU is zero or not measured: it scores 0 however busy it is.",
        "Set loadBalancerOverrideBrokerNicSpeedGbps where the speed of the network cards cannot be read.")
    LISTED_TWICE = ("listed_twice", WARN, Trait.NONE,
        "The cluster lists a broker more than once; it was taken once.",
        "Check for two brokers with the same advertised address and port.")
    UNKNOWN_BROKER = ("unknown_broker", WARN, Trait.NONE,
        "excluded_brokers names a broker that the cluster does not list: it is down, or misspelt and excludes nobody.",
        "Nothing if the broker is down for a while; else correct the name: brokerIds are advertisedAddress:port.")
    UNMATCHED_PATTERN = ("unmatched_pattern", WARN, Trait.NONE,
        "A pattern of excluded_bundles matches no bundle that a broker reports: it is misspelt and excludes nothing, "
        "or its bundles have no loaded topic.",
        "Nothing if its bundles are idle; else correct the pattern: bundles are tenant/namespace/0x…_0x….")
    SUMS_DISAGREE = ("sums_disagree", WARN, Trait.NONE,
        "A broker's traffic is not the sum of its bundles'; the amount to move is judged by the broker's.",
        "Nothing if it is gone in the next run; else check the broker's load report.")
    BAD_BUNDLE_NAME = ("bad_bundle_name", QUARANTINE, Trait.NONE,
        "A bundle's name is not of the form tenant/namespace/0x…_0x….",
        "Check the broker's load report.")
    SUITE_FAILED = ("suite_failed", BLOCK, Trait.NONE,
        "An expectation could not be evaluated, so nothing is known to be sound.",
        "Correct the suite or the expectation that the detail names.")
    JUST_STARTED = ("just_started", QUARANTINE, Trait.EXPECTED,
        "The broker has fewer than two host samples since its start, so it looks idle.",
        "Nothing: it takes part after two host samples.")
    TWO_OWNERS = ("two_owners", QUARANTINE, Trait.NONE,
        "Two brokers report the same bundle.",
        "Nothing if it is gone in the next run (normal for one interval after a move).")
    TOO_MANY_QUARANTINED = ("too_many_quarantined", BLOCK, Trait.NONE,
        "More brokers were left out than max_quarantined_brokers allows.",
        "Mend the brokers named, or raise the limit.")
    BUILTIN_SHEDDING_ON = ("builtin_shedding_on", HOLD, Trait.NONE,
        "Pulsar's own shedding is on: two balancers would fight.",
        "Run pulsar_control__<cluster> with the action take_over, or set loadBalancerSheddingEnabled to false.")
    EVEN_DISTRIBUTION_ON = ("even_distribution_on", WARN, Trait.NONE,
        "loadBalancerDistributeBundlesEvenlyEnabled is on; a planned destination is honoured all the same.")
    LEADER_UNREAD = ("leader_unread", HOLD, Trait.NONE,
        "There is no leader, or its configuration cannot be read: Pulsar's own shedding may be on.",
        "Nothing while a leader is elected; else check that broker and the role's rights.")
    BROKERS_DISAGREE = ("brokers_disagree", WARN, Trait.NONE,
        "Brokers run with different load-balancer settings; the leader's were taken.",
        "Give all brokers the same settings.")
    POLICY_UNREADABLE = ("policy_unreadable", HOLD, Trait.NONE,
        "Isolation policies could not be read or parsed, so no bundle is known to be free.",
        "Check the policy that the message names and the role's rights.")
    POLICY_UNCLEAR = ("policy_unclear", WARN, Trait.NONE,
        "A policy could not be read, or no active broker serves it; the namespaces that it concerns stay.",
        "Check the policy that the message names and the role's rights.")
    # files
    FILE_MISSING = ("file_missing", BLOCK, Trait.NONE,
        "A file of the run is missing.",
        "Check that every worker, and a Spark Connect server, sees the storage root.")
    STORAGE_FAILED = ("storage_failed", BLOCK, Trait.PASSING,
        "The file system or object store below the storage root refused: full, no rights, or not reachable.",
        "Make room, or look at the rights and the connection of the storage root; what was written before is whole.")
    FILE_DAMAGED = ("file_damaged", BLOCK, Trait.NONE,
        "A file of the run cannot be read.",
        "Clear the run's collect task; look at the disk.")
    FILE_VERSION = ("file_version", BLOCK, Trait.NONE,
        "A file was written by another version.",
        "Clear the run's collect task.")
    BAD_TRACE = ("bad_trace", BLOCK, Trait.TYPED,
        "A CSV trace holds something else than times and percentages of CPU.",
        "Correct the row and the column that the message names, or leave the cell empty.")
    PLAN_CHANGED = ("plan_changed", BLOCK, Trait.NONE,
        "A plan's files were altered after it was made.",
        "Nothing is carried out; find out who wrote to the storage root.")
    DECIDE_FAILED = ("decide_failed", BLOCK, Trait.PASSING,
        "The Spark application that decides ended without an answer.",
        "See the log of the run's decide task: its last lines say what happened.")
    REPLAY_FAILED = ("replay_failed", BLOCK, Trait.PASSING,
        "The Spark application that replays ended without an answer.",
        "See the log of the run's replay task: its last lines say what happened.")
    INTERVAL_BELOW_HOST_SAMPLE = ("interval_below_host_sample", WARN, Trait.NONE,
        "Runs follow each other faster than brokers measure their machine: most of them see a sample that was counted.",
        "Raise interval_seconds to host_usage_interval_minutes (loadBalancerHostUsageCheckIntervalMinutes), or more.")
    # counting
    COUNTED = ("counted", VERDICT, Trait.NONE,
        "The sample counted.")
    TOO_SOON = ("too_soon", VERDICT, Trait.WAITING,
        "The sample was counted already: less than half an interval or, with the same figures, a host interval ago.")
    GAP = ("gap", WARN, Trait.NONE,
        "The last counted sample is too old, or in the future, for hits to be consecutive: counters were cleared.",
        "Look why runs were missing, or at the workers' clocks.")
    FORCED = ("forced", VERDICT, Trait.NONE,
        "A forced run acts without hits and counts none.")
    OTHER_THRESHOLDS = ("other_thresholds", VERDICT, Trait.NONE,
        "A run with thresholds of its own counts no hits.")
    BY_HAND = ("by_hand", VERDICT, Trait.NONE,
        "A person asked for the plan; it counts no hits.")
    STRATEGY_CHANGED = ("strategy_changed", WARN, Trait.NONE,
        "The strategy differs from the one that kept the state: it starts anew.")
    # brokers and pairs
    BELOW_THRESHOLD = ("below_threshold", VERDICT, Trait.NONE,
        "The broker's figure does not reach the bound beside it.")
    NOT_OVERLOADED = ("not_overloaded", VERDICT, Trait.NONE,
        "The broker's load is below overloaded_threshold.")
    NOT_BUSIEST = ("not_busiest", VERDICT, Trait.NONE,
        "UniformLoadShedder sheds from the busiest broker alone.")
    SINGLE_BUNDLE = ("single_bundle", VERDICT, Trait.STUCK,
        "The broker should shed, but has a single bundle: elsewhere it would be as hot.",
        "Split the bundle, or give its namespace more bundles.")
    BALANCED = ("balanced", VERDICT, Trait.NONE,
        "The loads are in balance.")
    HIT_COUNT = ("hit_count", VERDICT, Trait.WAITING,
        "The loads are out of balance, not yet for enough runs in a row.")
    COOL_DOWN = ("cool_down", VERDICT, Trait.WAITING,
        "A broker reported too soon after its last unload: its load is not known yet.")
    OUTDATED = ("outdated", VERDICT, Trait.NONE,
        "The broker's report is older than load_data_ttl_seconds and no part of the mean.",
        "Check the broker's clock and the metadata store.")
    NO_LOAD_DATA = ("no_load_data", VERDICT, Trait.NONE,
        "No broker gives a report: there is no load to compare.",
        "Check the brokers.")
    NO_TOP_BUNDLES = ("no_top_bundles", VERDICT, Trait.STUCK,
        "The broker has no top bundle that may be looked at.",
        "Look at its traffic, at policies and at excluded namespaces.")
    CAP_BROKERS = ("cap_brokers", VERDICT, Trait.NONE,
        "max_brokers_per_run brokers have shed.",
        "Nothing: the next run goes on.")
    BELOW_LOW = ("below_low", VERDICT, Trait.NONE,
        "The pair's gap is below the low threshold: balanced.")
    HITS_LOW = ("hits_low", VERDICT, Trait.WAITING,
        "The gap is above the low threshold, not yet often enough.")
    HITS_HIGH = ("hits_high", VERDICT, Trait.WAITING,
        "The gap is above the high threshold, not yet often enough.")
    FIRED = ("fired", VERDICT, Trait.NONE,
        "Bundles are to be moved: the broker or pair was over its threshold, often enough where hits are counted.")
    BELOW_MINIMUM = ("below_minimum", VERDICT, Trait.STUCK,
        "Less than the minimum would have to move; AvgShedder's hits start anew.")
    NO_FITTING_BUNDLE = ("no_fitting_bundle", VERDICT, Trait.STUCK,
        "Fired, but no bundle fits into the amount to be moved; AvgShedder's hits start anew.")
    NO_ALLOWED_BUNDLE = ("no_allowed_bundle", VERDICT, Trait.STUCK,
        "Fired, but policies or placement keep bundles that might fit where they are; AvgShedder's hits start anew.",
        "See the bundles' reasons in the table moves.")
    BELOW_FORCE = ("below_force", VERDICT, Trait.NONE,
        "The gap is below the one from which the forced run was told to act.")
    MIDDLE = ("middle", VERDICT, Trait.NONE,
        "The broker in the middle of an odd number has no partner.")
    # bundles
    TAKEN = ("taken", VERDICT, Trait.NONE,
        "The bundle is moved.")
    OVER_REMAINING = ("over_remaining", VERDICT, Trait.NONE,
        "The bundle carries more than what is left to move.")
    BELOW_SHARE = ("below_share", VERDICT, Trait.NONE,
        "The bundle carries less than `min_bundle_share` of the amount to be moved.")
    TARGET_REACHED = ("target_reached", VERDICT, Trait.NONE,
        "The bundles taken before carry what is to be moved.")
    NOT_REACHED = ("not_reached", VERDICT, Trait.NONE,
        "The walk over the broker's bundles ended before this one.")
    LAST_BUNDLE = ("last_bundle", VERDICT, Trait.NONE,
        "One of the broker's top bundles stays in any case.")
    CAP_SHEDDING = ("cap_shedding", VERDICT, Trait.NONE,
        "The cap of max_unload_bundles was reached.")
    NAMESPACE_POLICY = ("namespace_policy", VERDICT, Trait.KEPT_IN_PLACE,
        "The namespace is under a policy and shed_policy_bundles is off.")
    NO_TRAFFIC = ("no_traffic", VERDICT, Trait.NONE,
        "The bundle carries no traffic of the measure that counts.")
    RECENTLY_UNLOADED = ("recently_unloaded", VERDICT, Trait.NONE,
        "The bundle was moved within the grace period.")
    SYSTEM_NAMESPACE = ("system_namespace", VERDICT, Trait.NONE,
        "System, heartbeat and SLA namespaces are never moved.")
    NAMESPACE_EXCLUDED = ("namespace_excluded", VERDICT, Trait.SETTLED,
        "The namespace is excluded by a setting.")
    POLICY_UNKNOWN = ("policy_unknown", VERDICT, Trait.KEPT_IN_PLACE,
        "It could not be read which brokers the bundle's namespace may be on.",
        "See policy_unclear or policy_unreadable in the run's validation.")
    POLICY_FORBIDS = ("policy_forbids", VERDICT, Trait.KEPT_IN_PLACE,
        "Isolation policies leave the bundle no other broker, or not the planned one.",
        "Nothing, unless unwanted: check the policy's brokers.")
    ANTI_AFFINITY = ("anti_affinity", VERDICT, Trait.KEPT_IN_PLACE,
        "The bundle's anti-affinity group is spread evenly, would be spread worse, or has a bundle that moves already.")
    TOO_MANY_TOPICS = ("too_many_topics", VERDICT, Trait.KEPT_IN_PLACE,
        "The planned broker has more than max_broker_topics topics, others have not.")
    NO_DESTINATION = ("no_destination", VERDICT, Trait.KEPT_IN_PLACE,
        "No broker that takes part in the run may take the bundle.",
        "Look why brokers were left out.")
    SAME_BROKER = ("same_broker", VERDICT, Trait.KEPT_IN_PLACE,
        "Placement chose the broker that the bundle is on.")
    BUNDLE_EXCLUDED = ("bundle_excluded", VERDICT, Trait.SETTLED,
        "The bundle is excluded by a setting.")
    BUNDLE_QUARANTINED = ("bundle_quarantined", VERDICT, Trait.NONE,
        "Validation left the bundle out.")
    CAP_RUN = ("cap_run", VERDICT, Trait.CAP,
        "The cap of bundles per run was reached.")
    CAP_BROKER = ("cap_broker", VERDICT, Trait.CAP,
        "The cap of bundles per broker was reached.")
    CAP_NAMESPACE = ("cap_namespace", VERDICT, Trait.CAP,
        "The cap of bundles per namespace was reached.")
    CAP_BYTES = ("cap_bytes", VERDICT, Trait.CAP,
        "The cap of throughput per run would be exceeded.",
        "Nothing: a later run takes it, unless the bundle alone is above max_bytes_per_run.")
    CAP_WAVES = ("cap_waves", VERDICT, Trait.CAP,
        "The same hash range is moved in too many namespaces at once.",
        "Nothing: the next firing takes it.")
    BROKER_QUARANTINED = ("broker_quarantined", VERDICT, Trait.NONE,
        "Validation left the broker out.")
    NO_PERSISTENT_TOPICS = ("no_persistent_topics", VERDICT, Trait.NONE,
        "The broker takes no persistent topics, others do: no bundle may go there, so AvgShedder pairs it with none.")
    BROKER_EXCLUDED = ("broker_excluded", VERDICT, Trait.SETTLED,
        "The broker is excluded by a setting.")
    # splits, as planned
    TO_BE_SPLIT = ("to_be_split", VERDICT, Trait.NONE,
        "The bundle is split; its parts may move in later runs.")
    SPLIT_OBSERVED = ("split_observed", VERDICT, Trait.NONE,
        "The bundle would be split, but split_mode is not auto.",
        "Set split_mode to auto if it should be.")
    BUILTIN_SPLITTING_ON = ("builtin_splitting_on", VERDICT, Trait.NONE,
        "The brokers split bundles themselves (loadBalancerAutoBundleSplitEnabled).",
        "Leave it to them, or set it to false on the brokers.")
    SPLIT_HITS = ("split_hits", VERDICT, Trait.NONE,
        "The bundle met a condition of splitting, not yet in enough samples in a row.")
    RECENTLY_SPLIT = ("recently_split", VERDICT, Trait.NONE,
        "The bundle is a part of one split within split_grace_minutes.")
    ONE_TOPIC = ("one_topic", VERDICT, Trait.NONE,
        "The bundle has fewer than two topics: a split would part nothing.")
    TOPICS_UNKNOWN = ("topics_unknown", VERDICT, Trait.NONE,
        "The bundle's topics or its namespace's bounds were not read: too many, or the broker did not answer.",
        "See the log of collect.")
    TOO_NARROW = ("too_narrow", VERDICT, Trait.NONE,
        "The bundle's range cannot be cut, or a part would be narrower than min_split_width.",
        "Choose other positions, or lower min_split_width.")
    POSITION_OUTSIDE = ("position_outside", VERDICT, Trait.NONE,
        "A position does not lie within the bundle's range.",
        "Name positions between its bounds.")
    NO_POSITION = ("no_position", VERDICT, Trait.NONE,
        "The algorithm finds no position at which to cut the bundle.",
        "Take another algorithm.")
    NAMESPACE_FULL = ("namespace_full", VERDICT, Trait.SETTLED,
        "The namespace has max_namespace_bundles bundles, or would have more.",
        "Raise loadBalancerNamespaceMaximumBundles if it should have more.")
    CAP_SPLITS = ("cap_splits", VERDICT, Trait.NONE,
        "A cap of splits was reached: per run, per namespace, or per broker.",
        "Nothing: a later run takes it.")
    # splits, as carried out
    SPLIT = ("split", VERDICT, Trait.SPLIT_AS_PLANNED | Trait.SETTLED,
        "The namespace has the planned bounds.")
    ALREADY_SPLIT = ("already_split", VERDICT, Trait.SPLIT_AS_PLANNED | Trait.SETTLED,
        "The namespace had the planned bounds before: nothing was split.")
    RANGE_GONE = ("range_gone", VERDICT, Trait.SETTLED,
        "The bundle's range no longer exists: left alone.",
        "Nothing: the next run sees the new bundles.")
    SPLIT_ELSEWHERE = ("split_elsewhere", VERDICT, Trait.NONE,
        "The bundle was split at other positions than planned, by somebody else.",
        "See who splits bundles of the namespace.")
    NOT_SPLIT = ("not_split", VERDICT, Trait.NONE,
        "The broker accepted the split, and the namespace's bounds stayed as they were.",
        "See whether the bundle has two topics; look at the owner's log if it repeats.")
    SPLIT_REFUSED = ("split_refused", VERDICT, Trait.NONE,
        "The broker refused the split (412).",
        "See whether supportedNamespaceBundleSplitAlgorithms holds the algorithm.")
    # gate
    OPEN = ("open", VERDICT, Trait.NONE,
        "The gate is open: the plan is carried out.")
    BLOCKED = ("blocked", VERDICT, Trait.NONE,
        "Validation stopped the run.",
        "See the block reasons of the run.")
    UNFINISHED = ("unfinished", VERDICT, Trait.NONE,
        "The run ended before the gate was asked.",
        "See the log of the task that failed.")
    NOTHING_TO_DO = ("nothing_to_do", VERDICT, Trait.NONE,
        "The plan moves nothing.")
    OBSERVE = ("observe", VERDICT, HELD | Trait.ORDERED,
        "Mode observe: decided and explained, nothing is moved.")
    PAUSED = ("paused", VERDICT, HELD | Trait.ORDERED,
        "The cluster is paused.",
        "Wait for its end, or lift it: with pulsar_control__<cluster> and the action resume, or in the clusters file.")
    AWAITING_APPROVAL = ("awaiting_approval", VERDICT, HELD | Trait.ORDERED,
        "The plan waits for a person's approval (mode approve).",
        "Approve or reject it in pulsar_apply__<cluster>.")
    REJECTED = ("rejected", VERDICT, Trait.NONE,
        "A person rejected these very moves within the last max_awaiting_minutes, so nobody is asked again yet.",
        "Nothing: other moves are asked about at once; to have these moved sooner, plan them by hand.")
    APPROVAL_UNREADABLE = ("approval_unreadable", VERDICT, Trait.NONE,
        "It cannot be read which plan waits for approval, or what people answered: nothing counts as approved.",
        "Nothing: the next plan with moves is asked about, and its answer writes anew what cannot be read.")
    SUPERSEDED = ("superseded", VERDICT, Trait.TYPED,
        "A newer plan waits for approval in the place of this one, or was carried out.",
        "Approve the newer one, or wait for the next.")
    NOT_APPROVED = ("not_approved", VERDICT, Trait.TYPED,
        "Nobody who is named approved the plan: its question was ended without an answer.",
        "Answer the question that shows the plan.")
    NOT_WHOLE = ("not_whole", VERDICT, Trait.TYPED,
        "Not all of what a person approved can be done any more, so none of it is.",
        "Wait for the next plan, which knows how things are.")
    AWAITED_TOO_LONG = ("awaited_too_long", VERDICT, Trait.TYPED,
        "The plan that waited for approval is older than max_awaiting_minutes.",
        "Nothing: the next plan with moves is shown.")
    BREAKER_OPEN = ("breaker_open", VERDICT, HELD | Trait.ORDERED,
        "The circuit breaker is open: too many brokers were bad, moves failed, or the range grew.",
        "See why; it closes by itself, or with pulsar_control__<cluster> and the action close_breaker.")
    BLACKOUT = ("blackout", VERDICT, HELD | Trait.ORDERED,
        "It is a time of blackouts in the clusters file.",
        "Nothing: the gate opens by itself; the detail says when.")
    OUTSIDE_WINDOW = ("outside_window", VERDICT, HELD | Trait.ORDERED,
        "It is no time of maintenance_windows in the clusters file.",
        "Nothing: the gate opens by itself; the detail says when.")
    SKIPPED = ("skipped", VERDICT, Trait.NONE,
        "A person had this run skipped.",
        "Nothing: the next run may act.")
    CONTROL_UNREADABLE = ("control_unreadable", VERDICT, HELD,
        "It cannot be read what people ordered, so nothing is moved.",
        "Mend the storage root or the clusters file, or run pulsar_control__<cluster> with resume or pause, which "
        "writes the orders anew.")
    ON_HOLD = ("on_hold", VERDICT, Trait.NONE,
        "Validation holds: acting would be unsafe.",
        "See the hold reasons of the run.")
    PLAN_TOO_OLD = ("plan_too_old", VERDICT, Trait.NONE,
        "The plan is older than max_plan_age_seconds; a wave, than max_wave_delay_seconds more.",
        "Nothing: the next run plans anew.")
    NOT_RECORDED = ("not_recorded", VERDICT, Trait.NONE,
        "The state store holds another plan than this one.",
        "Nothing: only the recorded plan is carried out.")
    OVER_CAP = ("over_cap", VERDICT, Trait.NONE,
        "The plan moves more than the caps in the clusters file allow by now.",
        "Nothing: the next run plans within them.")
    CONNECTION_CHANGED = ("connection_changed", VERDICT, Trait.NONE,
        "The clusters file names another connection or Pulsar cluster than the one that the plan was made with.",
        "Nothing: the next run plans anew.")
    FOREIGN_RUN = ("foreign_run", VERDICT, Trait.NONE,
        "The folder that a task was given is none of this DAG run and cluster.",
        "Clear the run from collect on; if it happens again, look who may write XComs.")
    # plans made by hand
    NO_SUCH_BUNDLE = ("no_such_bundle", VERDICT, Trait.TYPED,
        "No broker reports the bundle: it was split or deleted, or none of its topics is loaded.",
        "Look the bundle's name up; make the plan anew.")
    UNKNOWN_DESTINATION = ("unknown_destination", VERDICT, Trait.TYPED,
        "No active broker has the name that was given.",
        "Name the broker as /admin/v2/brokers lists it.")
    WOULD_OVERLOAD = ("would_overload", VERDICT, Trait.TYPED,
        "The plan would bring a broker above overloaded_threshold, if score follows traffic.",
        "Move less, or overrule it: overload.")
    OTHER_PLAN = ("other_plan", VERDICT, Trait.TYPED,
        "The hash is of no plan that was shown lately, or of one that was made for other fields.",
        "Give the hash of the plan that you mean and nothing else; or make the plan anew.")
    SHOWN_TOO_LONG_AGO = ("shown_too_long_ago", VERDICT, Trait.TYPED,
        "The plan made by hand is older than max_shown_plan_age_seconds.",
        "Make the plan anew.")
    PLAN_USED = ("plan_used", VERDICT, Trait.TYPED,
        "The plan was handed over to be carried out before.",
        "See that run; make the plan anew if it is still needed. After a stop it may be given again.")
    PLAN_UNDER_WAY = ("plan_under_way", VERDICT, Trait.TYPED,
        "Another plan made by hand waits for its run or is being carried out.",
        "Wait for the end of that run.")
    SPLIT_STAYS = ("split_stays", VERDICT, Trait.NONE,
        "The run split the bundle: that cannot be undone, Pulsar has no merge.")
    LAST_BROKER = ("last_broker", VERDICT, Trait.TYPED,
        "No other broker that takes part could take the bundles of the broker to be drained.",
        "See why the others were left out.")
    DRAIN = ("drain", VERDICT, Trait.NONE,
        "The broker is being drained: its bundles leave, within the caps.")
    DRAINING = ("draining", VERDICT, Trait.TYPED | Trait.SETTLED,
        "The broker is being drained: nothing is brought there until it is released.",
        "Release it, or name another broker.")
    NOT_DRAINED = ("not_drained", VERDICT, Trait.TYPED,
        "The broker is not being drained, or no longer.")
    DRAINS_UNREADABLE = ("drains_unreadable", BLOCK, Trait.NONE,
        "It cannot be read which brokers are drained, so nothing is moved.",
        "Mend the storage root, or release a broker, which writes anew what can be read of the marks; then drain again "
        "what is missing.")
    STOPPED = ("stopped", VERDICT, HELD,
        "A person stopped what was under way before the bundle was begun.",
        "To go on, give the hash of a plan by hand again, or plan the rest anew; waves can be cleared until another "
        "run has recorded its plan.")
    # moves
    MOVED = ("moved", VERDICT, Trait.ON_PLANNED_BROKER | Trait.NEW_OWNER | Trait.SETTLED,
        "The bundle is owned by its planned broker.")
    ALREADY_THERE = ("already_there", VERDICT, Trait.ON_PLANNED_BROKER | Trait.SETTLED,
        "The bundle was on its planned broker before: nothing was unloaded.")
    OWNER_CHANGED = ("owner_changed", VERDICT, Trait.SETTLED,
        "Another broker than the planned source owns the bundle: left alone.")
    NO_TOPIC = ("no_topic", VERDICT, Trait.SETTLED,
        "No loaded topic of the bundle was found, so placement cannot be triggered: left alone.")
    DESTINATION_GONE = ("destination_gone", VERDICT, Trait.SETTLED,
        "The planned broker is no longer active: left alone.")
    ASTRAY = ("astray", VERDICT, Trait.NEW_OWNER,
        "The bundle landed on another broker, also after the retries.",
        "Nothing: it is in the grace period; look at the leader's log if it repeats.")
    UNOWNED = ("unowned", VERDICT, Trait.RETRIED,
        "The bundle was unloaded, and no broker owned it within the time-out.",
        "Nothing: its clients' next lookup places it; look at the leader's log if it repeats.")
    UNKNOWN_OWNER = ("unknown_owner", VERDICT, Trait.RETRIED,
        "The bundle was unloaded, and it could not be read which broker owns it.",
        "See the error beside it; the next run reads ownership anew.")
    UNEXPECTED_ERROR = ("unexpected_error", VERDICT, Trait.PASSING,
        "The move broke off before anything was unloaded, for a reason that has no code.",
        "See the traceback in the task's log.")
    NOT_ATTEMPTED = ("not_attempted", VERDICT, Trait.NOT_BEGUN,
        "The move was planned but not tried before the run ended.")
    DESTINATION_KEPT = ("destination_kept", VERDICT, Trait.NONE,
        "An unload failed behind the leader, which may still place the bundle on the destination then named when it is "
        "unloaded next (before Pulsar 4.2.2: any bundle of the hash range).",
        "Nothing if it may go there: the rebalancer's next move of the bundle ends it; else unload the bundle with the "
        "destination that you want, or restart the leader and reset the state.")
    INTERRUPTED = ("interrupted", VERDICT, Trait.NONE,
        "The run ended while the bundle's wave was under way; it counts as recently unloaded.")
    UNLOAD_NOT_TRIED = ("unload_not_tried", VERDICT, Trait.NONE,
        "Unloading failed, and nothing was unloaded for long since: nobody knows whether it works.")
    # runs
    TASK_FAILED = ("task_failed", VERDICT, Trait.NONE,
        "A task failed for another reason than those listed here.",
        "See the task's log.")
    RUN_TOO_LONG = ("run_too_long", VERDICT, Trait.NONE,
        "The run took longer than the interval.",
        "See which task takes long; give it more room, or lengthen interval_seconds.")
    NO_RUN = ("no_run", VERDICT, Trait.NONE,
        "No run has come to its end for alert_after_intervals intervals.",
        "See whether the DAG is paused, a run hangs, or the workers are busy.")
    # fmt: on
