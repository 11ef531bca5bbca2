"""All reason codes, with their meaning and what to do: the single list behind code, reference pages and alerts."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pulsar_rebalancer.reasons.traits import Effect, Trait

BLOCK, HOLD, QUARANTINE, WARN, VERDICT = Effect

HELD = Trait.NOT_BEGUN | Trait.RETRIED | Trait.NEEDS_PERSON
"""Traits of the reasons that stop a plan before its next bundle is moved or split."""


class Reason(StrEnum):
    """A reason for a decision or a result. The value is the code in files, XComs and messages; it never changes.

    This module is long because an enumeration cannot be split across modules.

    Attributes:
        effect: effect on the run if validation reports this reason.
        traits: the groups that the reason belongs to.
        meaning: one sentence that describes what was observed.
        action: one sentence that says what to do; empty if no action is necessary.
    """

    effect: Effect
    traits: Trait
    meaning: str
    action: str

    def __new__(
        cls, code: str, effect: Effect = VERDICT, traits: Trait = Trait.NONE, meaning: str = "", action: str = ""
    ) -> Self:
        """Create a member from an entry in the list below."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.effect, member.traits, member.meaning, member.action = effect, traits, meaning, action
        return member

    def has(self, trait: Trait) -> bool:
        """Return whether the reason has any of the given traits."""
        return bool(self.traits & trait)

    @classmethod
    def get(cls, code: str) -> Reason | None:
        """Return the reason with this code; None if this release has no such code."""
        return cls._value2member_map_.get(code)  # type: ignore[return-value]

    @classmethod
    def having(cls, trait: Trait) -> frozenset[Reason]:
        """Return the reasons that have any of the given traits."""
        return frozenset(reason for reason in cls if reason.has(trait))

    # One line for code, effect and traits, one for the meaning, one for the action.
    # fmt: off
    # settings
    WRONG_SETTING = ("wrong_setting", BLOCK, Trait.TYPED,
        "A setting is unknown, of the wrong type or out of range.",
        "Correct the key that the message names; the clusters file overrides values from the brokers.")
    CONNECTION_NOT_FOUND = ("connection_not_found", BLOCK, Trait.PASSING,
        "Airflow has no connection with the name in spark_connection, or its secrets backend did not answer.",
        "Add the connection, or check the secrets backend.")
    SPARK_UNREACHABLE = ("spark_unreachable", BLOCK, Trait.PASSING,
        "The Spark Connect server of spark_connection did not accept a connection.",
        "Start the server, or correct the connection's host and port.")
    CONTRADICTION = ("contradiction", BLOCK, Trait.TYPED,
        "Two settings contradict each other.",
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
        "Check the broker's load and the connection's time-out.")
    CERTIFICATE_REFUSED = ("certificate_refused", QUARANTINE,
        Trait.NO_ANSWER | Trait.NOT_UNLOADED | Trait.MAY_HAVE_PLAN | Trait.NEEDS_PERSON,
        "A broker's certificate could not be verified, so nothing was sent to it.",
        "Check the connection's ca_file and the host name in the broker's certificate.")
    UNAUTHORIZED = ("unauthorized", BLOCK, Trait.CREDENTIALS | Trait.NOT_UNLOADED | Trait.NEEDS_PERSON,
        "The credentials were refused (401).",
        "Give the connection a valid token of a super-user.")
    FORBIDDEN = ("forbidden", BLOCK, Trait.CREDENTIALS | Trait.NOT_UNLOADED | Trait.NEEDS_PERSON,
        "The credentials lack permission (403, or 401 with a reason).",
        "Add the role to the brokers' superUserRoles.")
    TOKEN_EXPIRED = ("token_expired", BLOCK, Trait.CREDENTIALS | Trait.NOT_UNLOADED | Trait.NEEDS_PERSON,
        "Brokers refused the token, which has expired (401).",
        "Give the connection a new token, or see why its token_file is not replaced in time.")
    TOKEN_REFUSED = ("token_refused", BLOCK, Trait.CREDENTIALS | Trait.NOT_UNLOADED | Trait.NEEDS_PERSON,
        "Brokers refused a token that the issuer had just issued (401).",
        "Compare the connection's issuer_url, audience and scope with the brokers' openIDAllowedTokenIssuers and "
        "openIDAllowedAudiences, or tokenAudience; compare the clocks.")
    CREDENTIALS_FILE = ("credentials_file", BLOCK, Trait.CREDENTIALS | Trait.NOT_UNLOADED | Trait.PASSING,
        "The connection's token_file or credentials_file is missing, cannot be read or has unexpected content.",
        "Check the file on the workers, its owner and permissions, and what replaces it.")
    ISSUER_UNAVAILABLE = ("issuer_unavailable", BLOCK, Trait.CREDENTIALS | Trait.NOT_UNLOADED | Trait.PASSING,
        "The issuer of tokens did not accept a connection, did not answer in time, or its answer has no token.",
        "Check that the issuer runs, that the workers can reach it, and the connection's issuer_url and ca_file.")
    ISSUER_REFUSED = ("issuer_refused", BLOCK, Trait.CREDENTIALS | Trait.NOT_UNLOADED | Trait.NEEDS_PERSON,
        "The issuer refused to issue a token (400, 401 or 403).",
        "Replace the client's secret in the credentials_file if it has expired; check audience and scope.")
    NOT_FOUND = ("not_found", VERDICT, Trait.NOT_UNLOADED | Trait.SETTLED,
        "Pulsar does not know the namespace, bundle, topic or broker (404).")
    CONFLICT = ("conflict", VERDICT, Trait.NOT_UNLOADED,
        "The destination is not an active broker (409).",
        "Nothing: the next run makes a new plan.")
    BAD_RANGE = ("bad_range", VERDICT, Trait.NOT_UNLOADED | Trait.SETTLED,
        "The bundle's range no longer exists: the bundle was split (412).",
        "Nothing: the next run sees the new bundles.")
    SERVER_ERROR = ("server_error", VERDICT, Trait.PASSING,
        "The broker failed to process the request (5xx).",
        "Check the broker's log.")
    NO_LOAD_REPORT = ("no_load_report", BLOCK, Trait.NONE,
        "The load manager provides no load report.",
        "Only brokers with loadManagerClassName ModularLoadManagerImpl or ExtensibleLoadManagerImpl can be balanced.")
    CLIENT_MISSING = ("client_missing", BLOCK, Trait.NONE,
        "listen_seconds asks for data that brokers publish, but Pulsar's client is not installed.",
        "Install pulsar-rebalancer[extensible] on the workers, or set listen_seconds to 0.")
    REDIRECT_LOOP = ("redirect_loop", VERDICT, Trait.PASSING,
        "Brokers redirected the request in a loop.",
        "Check the brokers' advertised addresses and the leader's health.")
    FOREIGN_SERVICE_URL = ("foreign_service_url", VERDICT, Trait.NONE,
        "The brokers name no binary address, or one on an unknown host; no credentials were sent there.",
        "Set the connection's service_url to an address that you trust.")
    FOREIGN_REDIRECT = ("foreign_redirect", VERDICT, Trait.NOT_UNLOADED | Trait.MAY_HAVE_PLAN | Trait.NEEDS_PERSON,
        "A redirect led to an address that is not a broker of this cluster; nothing was sent there.",
        "Add the broker to the connection's address map, or correct its advertised address.")
    BAD_ANSWER = ("bad_answer", VERDICT, Trait.PASSING,
        "The answer was not JSON, was too large, or did not have the documented shape.",
        "Check that the address belongs to a Pulsar broker, not to a proxy.")
    READ_ONLY = ("read_only", VERDICT, Trait.NOT_UNLOADED | Trait.NEEDS_PERSON,
        "The connection is read-only: a request that is not a GET was refused before it was sent.",
        "Remove read_only from the connection to let the rebalancer act.")
    # state
    STATE_LOST = ("state_lost", BLOCK, Trait.NONE,
        "The state store is empty, but earlier runs were committed.",
        "Restore the state from its last copy, or reset it.")
    STATE_VERSION = ("state_version", BLOCK, Trait.NONE,
        "The state was written by another version.",
        "Upgrade, or reset the state.")
    STALE_PLAN = ("stale_plan", BLOCK, Trait.NONE,
        "The state has changed since this plan was made.",
        "Nothing: the plan is void, and the next run makes a new one.")
    # validation
    TOO_FEW_BROKERS = ("too_few_brokers", BLOCK, Trait.NONE,
        "Fewer than two brokers can be compared.",
        "See why the others are left out.")
    REPORT_MISSING = ("report_missing", QUARANTINE, Trait.NONE,
        "A listed broker gave no load report.",
        "Check the broker; the cause next to this code says how the request failed.")
    REPORT_STALE = ("report_stale", QUARANTINE, Trait.NONE,
        "A load report is older than the brokers' longest reporting interval.",
        "Check the broker's clock and its connection to the metadata store.")
    NOT_A_NUMBER = ("not_a_number", QUARANTINE, Trait.NONE,
        "A figure of a load report is missing or not a number.",
        "Check the broker's version and its load report.")
    NEGATIVE_FIGURE = ("negative_figure", QUARANTINE, Trait.NONE,
        "A figure of a load report is negative.",
        "Check the broker's load report.")
    IMPOSSIBLE_FIGURE = ("impossible_figure", QUARANTINE, Trait.NONE,
        "A figure of a load report is higher than any machine can reach.",
        "Check the broker's load report.")
    LOAD_IN_DOUBT = ("load_in_doubt", QUARANTINE, Trait.NONE,
        "The CPU has no limit or is used at more than twice its limit, or the score rests only on such a resource.",
        "Check the broker's CPU quota, memory settings and loadBalancerOverrideBrokerNicSpeedGbps, or a weight of 0.")
    TRAFFIC_IN_DOUBT = ("traffic_in_doubt", QUARANTINE, Trait.NONE,
        "Bundles that were left out carry a larger share of the broker's traffic than max_quarantined_traffic.",
        "See why these bundles were left out; fix that, or raise the limit.")
    CLOCK_AHEAD = ("clock_ahead", QUARANTINE, Trait.NONE,
        "A load report is dated in the future: the broker's clock is ahead of the workers'.",
        "Synchronise the clocks of brokers and workers.")
    WRONG_BROKER = ("wrong_broker", QUARANTINE, Trait.NONE,
        "This broker's address returned another broker's load report.",
        "Map the broker to its own address, not to a service or proxy in front of several brokers.")
    OVER_LIMIT = ("over_limit", WARN, Trait.NONE,
        "A resource is used far beyond its limit.",
        "Check the broker's limits: CPU quota, memory settings, loadBalancerOverrideBrokerNicSpeedGbps.")
    ZERO_LIMIT = ("zero_limit", WARN, Trait.NONE,
        "The limit of a resource other than the CPU is zero or unknown: the resource scores 0 however busy it is.",
        "Set loadBalancerOverrideBrokerNicSpeedGbps where the speed of the network cards cannot be read.")
    LISTED_TWICE = ("listed_twice", WARN, Trait.NONE,
        "The cluster lists a broker more than once; it was used once.",
        "Look for two brokers with the same advertised address and port.")
    UNKNOWN_BROKER = ("unknown_broker", WARN, Trait.NONE,
        "excluded_brokers names a broker that the cluster does not list: it is down, or the name is misspelt.",
        "Nothing if the broker is down for a while; otherwise correct the name: broker ids are advertisedAddress:port.")
    UNMATCHED_PATTERN = ("unmatched_pattern", WARN, Trait.NONE,
        "A pattern in excluded_bundles matches no reported bundle: the pattern is misspelt, "
        "or its bundles have no loaded topics.",
        "Nothing if its bundles are idle; otherwise correct the pattern: bundles are tenant/namespace/0x…_0x….")
    SUMS_DISAGREE = ("sums_disagree", WARN, Trait.NONE,
        "A broker's traffic differs from the sum of its bundles; the amount to move follows the broker's figure.",
        "Nothing if the next run no longer shows it; otherwise check the broker's load report.")
    BAD_BUNDLE_NAME = ("bad_bundle_name", QUARANTINE, Trait.NONE,
        "A bundle's name does not have the form tenant/namespace/0x…_0x….",
        "Check the broker's load report.")
    SUITE_FAILED = ("suite_failed", BLOCK, Trait.NONE,
        "An expectation could not be evaluated, so the data cannot be trusted.",
        "Correct the suite or the expectation that the detail names.")
    JUST_STARTED = ("just_started", QUARANTINE, Trait.EXPECTED,
        "The broker has reported fewer than two host samples since it started, so it looks idle.",
        "Nothing: it takes part after two host samples.")
    TWO_OWNERS = ("two_owners", QUARANTINE, Trait.NONE,
        "Two brokers report the same bundle.",
        "Nothing if the next run no longer shows it (normal for one interval after a move).")
    TOO_MANY_QUARANTINED = ("too_many_quarantined", BLOCK, Trait.NONE,
        "More brokers were left out than max_quarantined_brokers allows.",
        "Repair the brokers named, or raise the limit.")
    BUILTIN_SHEDDING_ON = ("builtin_shedding_on", HOLD, Trait.NONE,
        "Pulsar's own shedding is on: two balancers would fight.",
        "Run pulsar-admin brokers update-dynamic-config --config loadBalancerSheddingEnabled --value false.")
    EVEN_DISTRIBUTION_ON = ("even_distribution_on", WARN, Trait.NONE,
        "loadBalancerDistributeBundlesEvenlyEnabled is on; planned destinations are honoured anyway.")
    LEADER_UNREAD = ("leader_unread", HOLD, Trait.NONE,
        "There is no leader, or its configuration cannot be read: Pulsar's own shedding may be on.",
        "Nothing during a leader election; otherwise check that broker and the role's permissions.")
    BROKERS_DISAGREE = ("brokers_disagree", WARN, Trait.NONE,
        "Brokers run with different load-balancer settings; the leader's settings apply.",
        "Give all brokers the same settings.")
    POLICY_UNREADABLE = ("policy_unreadable", HOLD, Trait.NONE,
        "Isolation policies could not be read or parsed, so no bundle is known to be free to move.",
        "Check the policy that the message names and the role's permissions.")
    POLICY_UNCLEAR = ("policy_unclear", WARN, Trait.NONE,
        "A policy could not be read, or no active broker serves it; bundles of its namespaces stay.",
        "Check the policy that the message names and the role's permissions.")
    # files
    FILE_MISSING = ("file_missing", BLOCK, Trait.NONE,
        "A file of the run is missing.",
        "Check that every worker, and a Spark Connect server, sees the storage root.")
    STORAGE_FAILED = ("storage_failed", BLOCK, Trait.PASSING,
        "The file system or object store under the storage root refused: full, no permission, or unreachable.",
        "Free space, or check permissions and connection of the storage root; what was written before is intact.")
    FILE_DAMAGED = ("file_damaged", BLOCK, Trait.NONE,
        "A file of the run cannot be read.",
        "Clear the run's collect task; check the disk.")
    FILE_VERSION = ("file_version", BLOCK, Trait.NONE,
        "A file was written by another version.",
        "Clear the run's collect task.")
    PLAN_CHANGED = ("plan_changed", BLOCK, Trait.NONE,
        "A plan's files were changed after the plan was made.",
        "Nothing was carried out; find out who wrote to the storage root.")
    DECIDE_FAILED = ("decide_failed", BLOCK, Trait.PASSING,
        "The Spark application that decides ended without an answer.",
        "See the log of the run's decide task: its last lines say what happened.")
    BAD_RESULT = ("bad_result", BLOCK, Trait.NONE,
        "The strategy returned an impossible move: an unknown bundle, another broker's bundle, a bundle twice, or a "
        "figure that is negative or not a number.",
        "Mend the custom shedder, or choose another strategy.")
    REPLAY_FAILED = ("replay_failed", BLOCK, Trait.PASSING,
        "The Spark application that replays ended without an answer.",
        "See the log of the run's replay task: its last lines say what happened.")
    INTERVAL_BELOW_HOST_SAMPLE = ("interval_below_host_sample", WARN, Trait.NONE,
        "Runs are more frequent than the brokers' host measurements: most runs see a sample that was already counted.",
        "Raise interval_seconds to host_usage_interval_minutes (loadBalancerHostUsageCheckIntervalMinutes), or more.")
    # counting
    COUNTED = ("counted", VERDICT, Trait.NONE,
        "The sample counted.")
    TOO_SOON = ("too_soon", VERDICT, Trait.WAITING,
        "The sample was already counted: less than half an interval ago or, with equal figures, a host interval ago.")
    GAP = ("gap", WARN, Trait.NONE,
        "The last counted sample is too old, or in the future, for hits to be consecutive: counters were cleared.",
        "Find out why runs are missing, or check the workers' clocks.")
    FORCED = ("forced", VERDICT, Trait.NONE,
        "A forced run acts without hits and counts none.")
    OTHER_THRESHOLDS = ("other_thresholds", VERDICT, Trait.NONE,
        "A run with its own thresholds counts no hits.")
    BY_HAND = ("by_hand", VERDICT, Trait.NONE,
        "A person asked for the plan; it counts no hits.")
    STRATEGY_CHANGED = ("strategy_changed", WARN, Trait.NONE,
        "The strategy differs from the one that wrote the state: it starts from scratch.")
    # brokers and pairs
    BELOW_THRESHOLD = ("below_threshold", VERDICT, Trait.NONE,
        "The broker's figure is below its bound.")
    NOT_OVERLOADED = ("not_overloaded", VERDICT, Trait.NONE,
        "The broker's load is below overloaded_threshold.")
    NOT_BUSIEST = ("not_busiest", VERDICT, Trait.NONE,
        "This strategy sheds only from the busiest broker.")
    SINGLE_BUNDLE = ("single_bundle", VERDICT, Trait.STUCK,
        "The broker should shed but has only one bundle, which would make any other broker as hot.",
        "Split the bundle, or give its namespace more bundles.")
    BALANCED = ("balanced", VERDICT, Trait.NONE,
        "The loads are in balance.")
    HIT_COUNT = ("hit_count", VERDICT, Trait.WAITING,
        "The loads are out of balance, but not yet for enough runs in a row.")
    COOL_DOWN = ("cool_down", VERDICT, Trait.WAITING,
        "A broker reported too soon after its last unload: its new load is not known yet.")
    OUTDATED = ("outdated", VERDICT, Trait.NONE,
        "The broker's report is older than load_data_ttl_seconds, so the mean ignores it.",
        "Check the broker's clock and the metadata store.")
    NO_LOAD_DATA = ("no_load_data", VERDICT, Trait.NONE,
        "No broker provided a report: there is no load to compare.",
        "Check the brokers.")
    NO_TOP_BUNDLES = ("no_top_bundles", VERDICT, Trait.STUCK,
        "None of the broker's top bundles may be considered.",
        "Check its traffic, policies and excluded namespaces.")
    CAP_BROKERS = ("cap_brokers", VERDICT, Trait.NONE,
        "As many brokers as max_brokers_per_run allows have shed bundles.",
        "Nothing: the next run continues.")
    BELOW_LOW = ("below_low", VERDICT, Trait.NONE,
        "The pair's gap is below the low threshold: balanced.")
    HITS_LOW = ("hits_low", VERDICT, Trait.WAITING,
        "The gap is at or above the low threshold, but not yet often enough.")
    HITS_HIGH = ("hits_high", VERDICT, Trait.WAITING,
        "The gap is at or above the high threshold, but not yet often enough.")
    HITS_HOT = ("hits_hot", VERDICT, Trait.WAITING,
        "The broker is at `hot_threshold` and the gap is at or above the low threshold, but not yet often enough.")
    FIRED = ("fired", VERDICT, Trait.NONE,
        "Bundles have to move: the broker or pair was at or above its threshold, and often enough where hits count.")
    BELOW_MINIMUM = ("below_minimum", VERDICT, Trait.STUCK,
        "The amount to move is below the minimum; a pair's hits are reset.")
    NO_FITTING_BUNDLE = ("no_fitting_bundle", VERDICT, Trait.STUCK,
        "Fired, but no bundle fits into the amount to move; a pair's hits are reset.")
    NO_ALLOWED_BUNDLE = ("no_allowed_bundle", VERDICT, Trait.STUCK,
        "Fired, but policies or placement keep all fitting bundles in place; a pair's hits are reset.",
        "See the bundles' reasons in the table moves.")
    NO_GAIN = ("no_gain", VERDICT, Trait.STUCK,
        "Fired, but no bundle's move is worth its price; the pair's hits are kept.")
    MEMORY_DECIDES = ("memory_decides", VERDICT, Trait.NONE,
        "Scores are set by direct memory, which traffic does not explain, so bundles are chosen by the default "
        "strategy's rules.")
    BELOW_FORCE = ("below_force", VERDICT, Trait.NONE,
        "The gap is below the forced run's threshold.")
    MIDDLE = ("middle", VERDICT, Trait.NONE,
        "The broker in the middle of an odd number has no partner.")
    # bundles
    TAKEN = ("taken", VERDICT, Trait.NONE,
        "The bundle is moved.")
    OVER_REMAINING = ("over_remaining", VERDICT, Trait.NONE,
        "The bundle carries more than is left to move.")
    BELOW_SHARE = ("below_share", VERDICT, Trait.NONE,
        "The bundle carries less than `min_bundle_share` of the amount to move.")
    BELOW_GAIN = ("below_gain", VERDICT, Trait.NONE,
        "Moving the bundle would gain less than its price.")
    WOULD_OVERSHOOT = ("would_overshoot", VERDICT, Trait.NONE,
        "Moving the bundle would take the two brokers further from the mean.")
    BETTER_BUNDLE = ("better_bundle", VERDICT, Trait.NONE,
        "The move was worth its price, but no longer is after better bundles have moved.")
    TARGET_REACHED = ("target_reached", VERDICT, Trait.NONE,
        "The bundles already taken carry the whole amount to move.")
    NOT_REACHED = ("not_reached", VERDICT, Trait.NONE,
        "The walk over the broker's bundles ended before it reached this one.")
    LAST_BUNDLE = ("last_bundle", VERDICT, Trait.NONE,
        "One of the broker's top bundles always stays.")
    CAP_SHEDDING = ("cap_shedding", VERDICT, Trait.NONE,
        "The cap of max_unload_bundles was reached.")
    NAMESPACE_POLICY = ("namespace_policy", VERDICT, Trait.KEPT_IN_PLACE,
        "The namespace is under a policy and shed_policy_bundles is off.")
    NO_TRAFFIC = ("no_traffic", VERDICT, Trait.NONE,
        "The bundle carries no traffic in the measure that counts.")
    RECENTLY_UNLOADED = ("recently_unloaded", VERDICT, Trait.NONE,
        "The bundle was moved within the grace period.")
    SYSTEM_NAMESPACE = ("system_namespace", VERDICT, Trait.NONE,
        "System, heartbeat and SLA namespaces are never moved.")
    NAMESPACE_EXCLUDED = ("namespace_excluded", VERDICT, Trait.SETTLED,
        "The namespace is excluded by a setting.")
    POLICY_UNKNOWN = ("policy_unknown", VERDICT, Trait.KEPT_IN_PLACE,
        "The brokers that may own the bundle's namespace are unknown: their policies could not be read.",
        "See policy_unclear or policy_unreadable in the run's validation.")
    POLICY_FORBIDS = ("policy_forbids", VERDICT, Trait.KEPT_IN_PLACE,
        "Isolation policies allow the bundle no other broker, or not the planned one.",
        "Nothing if that is intended; otherwise check the policy's brokers.")
    ANTI_AFFINITY = ("anti_affinity", VERDICT, Trait.KEPT_IN_PLACE,
        "The bundle's anti-affinity group is spread evenly, would be spread worse, or already has a bundle that moves.")
    TOO_MANY_TOPICS = ("too_many_topics", VERDICT, Trait.KEPT_IN_PLACE,
        "The planned broker has more than max_broker_topics topics, and other brokers do not.")
    NO_DESTINATION = ("no_destination", VERDICT, Trait.KEPT_IN_PLACE,
        "No broker in the run may take the bundle.",
        "See why brokers were left out.")
    SAME_BROKER = ("same_broker", VERDICT, Trait.KEPT_IN_PLACE,
        "Placement chose the broker that already owns the bundle.")
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
        "Nothing: a later run takes it, unless the bundle by itself exceeds max_bytes_per_run.")
    CAP_WAVES = ("cap_waves", VERDICT, Trait.CAP,
        "Bundles of the same hash range move in too many namespaces at once.",
        "Nothing: it moves the next time its pair fires.")
    BROKER_QUARANTINED = ("broker_quarantined", VERDICT, Trait.NONE,
        "Validation left the broker out.")
    NO_PERSISTENT_TOPICS = ("no_persistent_topics", VERDICT, Trait.NONE,
        "Policies keep persistent topics off the broker: no bundle may go there, so it gets no partner.")
    BROKER_EXCLUDED = ("broker_excluded", VERDICT, Trait.SETTLED,
        "The broker is excluded by a setting.")
    # splits, as planned
    TO_BE_SPLIT = ("to_be_split", VERDICT, Trait.NONE,
        "The bundle will be split; its parts may move in later runs.")
    SPLIT_OBSERVED = ("split_observed", VERDICT, Trait.NONE,
        "The bundle would be split, but split_mode is not auto.",
        "Set split_mode to auto to split it.")
    BUILTIN_SPLITTING_ON = ("builtin_splitting_on", VERDICT, Trait.NONE,
        "At least one broker splits bundles itself (loadBalancerAutoBundleSplitEnabled).",
        "Leave it to them, or set it to false on the brokers.")
    SPLIT_HITS = ("split_hits", VERDICT, Trait.NONE,
        "The bundle met a split condition, but not yet in enough samples in a row.")
    RECENTLY_SPLIT = ("recently_split", VERDICT, Trait.NONE,
        "The bundle is part of one that was split within split_grace_minutes.")
    ONE_TOPIC = ("one_topic", VERDICT, Trait.NONE,
        "The bundle has fewer than two topics: there is nothing to split.")
    TOPICS_UNKNOWN = ("topics_unknown", VERDICT, Trait.NONE,
        "The bundle's topics or its namespace's bounds were not read: too many, or the broker did not answer.",
        "See the log of the collect task.")
    TOO_NARROW = ("too_narrow", VERDICT, Trait.NONE,
        "The bundle's range cannot be cut, or a part would be narrower than min_split_width.",
        "Choose other positions, or lower min_split_width.")
    POSITION_OUTSIDE = ("position_outside", VERDICT, Trait.NONE,
        "A position is outside the bundle's range.",
        "Choose positions between its bounds.")
    NO_POSITION = ("no_position", VERDICT, Trait.NONE,
        "The algorithm finds no position to split the bundle at.",
        "Choose another algorithm.")
    NAMESPACE_FULL = ("namespace_full", VERDICT, Trait.SETTLED,
        "The namespace has max_namespace_bundles bundles, or the split would exceed that.",
        "Raise loadBalancerNamespaceMaximumBundles if it should have more.")
    CAP_SPLITS = ("cap_splits", VERDICT, Trait.NONE,
        "A cap on splits was reached: per run, per namespace, or per broker.",
        "Nothing: a later run takes it.")
    # splits, as carried out
    SPLIT = ("split", VERDICT, Trait.SPLIT_AS_PLANNED | Trait.SETTLED,
        "The namespace has the planned bounds.")
    ALREADY_SPLIT = ("already_split", VERDICT, Trait.SPLIT_AS_PLANNED | Trait.SETTLED,
        "The namespace already had the planned bounds: nothing was split.")
    RANGE_GONE = ("range_gone", VERDICT, Trait.SETTLED,
        "The bundle's range no longer exists: nothing was done.",
        "Nothing: the next run sees the new bundles.")
    SPLIT_ELSEWHERE = ("split_elsewhere", VERDICT, Trait.NONE,
        "Somebody else split the bundle, at other positions than planned.",
        "Find out who splits bundles of the namespace.")
    NOT_SPLIT = ("not_split", VERDICT, Trait.NONE,
        "The broker accepted the split, but the namespace's bounds did not change.",
        "Check that the bundle has at least two topics; if it happens again, see the owner's log.")
    SPLIT_REFUSED = ("split_refused", VERDICT, Trait.NONE,
        "The broker refused the split (412).",
        "Check that supportedNamespaceBundleSplitAlgorithms contains the algorithm.")
    # gate
    OPEN = ("open", VERDICT, Trait.NONE,
        "The gate is open: the plan will be carried out.")
    BLOCKED = ("blocked", VERDICT, Trait.NONE,
        "Validation stopped the run.",
        "See the block reasons of the run.")
    UNFINISHED = ("unfinished", VERDICT, Trait.NONE,
        "The run ended before it reached the gate.",
        "See the log of the task that failed.")
    NOTHING_TO_DO = ("nothing_to_do", VERDICT, Trait.NONE,
        "The plan moves nothing.")
    OBSERVE = ("observe", VERDICT, HELD | Trait.ORDERED,
        "Mode observe: decided and explained, nothing is moved.")
    PAUSED = ("paused", VERDICT, HELD | Trait.ORDERED,
        "The cluster is paused.",
        "Wait for the pause to end, or lift it: run pulsar_control__<cluster> with resume, or edit the clusters file.")
    AWAITING_APPROVAL = ("awaiting_approval", VERDICT, HELD | Trait.ORDERED,
        "The plan waits for a person's approval (mode approve).",
        "Approve or reject it in pulsar_apply__<cluster>.")
    REJECTED = ("rejected", VERDICT, Trait.NONE,
        "A person rejected exactly these moves within the last max_awaiting_minutes, so nobody is asked again yet.",
        "Nothing: people are asked about any other moves at once. To move these sooner, make a manual plan.")
    APPROVAL_UNREADABLE = ("approval_unreadable", VERDICT, Trait.NONE,
        "The plan that waits for approval, or the answers to it, cannot be read: nothing counts as approved.",
        "Nothing: people are asked about the next plan with moves, and that rewrites what cannot be read.")
    SUPERSEDED = ("superseded", VERDICT, Trait.TYPED,
        "A newer plan waits for approval instead, or was carried out.",
        "Approve the newer one, or wait for the next.")
    NOT_APPROVED = ("not_approved", VERDICT, Trait.TYPED,
        "No named person approved the plan: its question ended without an answer.",
        "Answer the question that shows the plan.")
    SAME_PERSON = ("same_person", VERDICT, Trait.TYPED,
        "The cluster needs two people (two_people): nobody approves or carries out the plan that they requested.",
        "Have another person do it: the question stays open, and a manual plan stays valid for its time.")
    NO_USER = ("no_user", VERDICT, Trait.TYPED,
        "The cluster needs two people (two_people), and a request or its approval has no Airflow user.",
        "Make the request again as a user who has signed in to Airflow; release and drain again a broker whose drain "
        "has no user.")
    DAG_PAUSED = ("dag_paused", VERDICT, Trait.TYPED,
        "The DAG whose run would carry out the plan is paused in Airflow.",
        "Unpause pulsar_rebalance__<cluster>, then approve the plan or give its hash again in time.")
    NOT_WHOLE = ("not_whole", VERDICT, Trait.TYPED,
        "Some of what a person approved can no longer be done, so none of it was.",
        "Wait for the next plan, which takes the changes into account.")
    AWAITED_TOO_LONG = ("awaited_too_long", VERDICT, Trait.TYPED,
        "The plan waited for approval for longer than max_awaiting_minutes.",
        "Nothing: people are asked about the next plan with moves.")
    BREAKER_OPEN = ("breaker_open", VERDICT, HELD | Trait.ORDERED,
        "The circuit breaker is open: too many bad brokers, failed moves, or a growing range.",
        "See why; it closes by itself, or run pulsar_control__<cluster> with close_breaker.")
    BLACKOUT = ("blackout", VERDICT, HELD | Trait.ORDERED,
        "A blackout of the clusters file is in force.",
        "Nothing: the gate opens by itself; the detail says when.")
    OUTSIDE_WINDOW = ("outside_window", VERDICT, HELD | Trait.ORDERED,
        "Outside all maintenance_windows of the clusters file.",
        "Nothing: the gate opens by itself; the detail says when.")
    SKIPPED = ("skipped", VERDICT, Trait.NONE,
        "A person ordered this run to be skipped.",
        "Nothing: the next run may act.")
    CONTROL_UNREADABLE = ("control_unreadable", VERDICT, HELD,
        "The orders that people gave cannot be read, so nothing is moved.",
        "Repair the storage root or the clusters file, or run pulsar_control__<cluster> with resume or pause, which "
        "rewrites the orders.")
    ON_HOLD = ("on_hold", VERDICT, Trait.NONE,
        "Validation found a reason to hold: acting would be unsafe.",
        "See the hold reasons of the run.")
    PLAN_TOO_OLD = ("plan_too_old", VERDICT, Trait.NONE,
        "The plan is older than max_plan_age_seconds, or its wave starts more than max_wave_delay_seconds after that.",
        "Nothing: the next run makes a new plan.")
    NOT_RECORDED = ("not_recorded", VERDICT, Trait.NONE,
        "The state store holds a different plan.",
        "Nothing: only the recorded plan is carried out.")
    OVER_CAP = ("over_cap", VERDICT, Trait.NONE,
        "The plan moves more than the clusters file's caps now allow.",
        "Nothing: the next run plans within the caps.")
    CONNECTION_CHANGED = ("connection_changed", VERDICT, Trait.NONE,
        "The clusters file now names a connection or Pulsar cluster other than the one the plan was made for.",
        "Nothing: the next run makes a new plan.")
    FOREIGN_RUN = ("foreign_run", VERDICT, Trait.NONE,
        "A task was given a folder that does not belong to this DAG run and cluster.",
        "Clear the run from collect on; if it happens again, find out who may write XComs.")
    # plans made by hand
    NO_SUCH_BUNDLE = ("no_such_bundle", VERDICT, Trait.TYPED,
        "No broker reports the bundle: it was split or deleted, or none of its topics is loaded.",
        "Check the bundle's name and make a new plan.")
    UNKNOWN_DESTINATION = ("unknown_destination", VERDICT, Trait.TYPED,
        "No active broker has the given name.",
        "Name the broker as /admin/v2/brokers lists it.")
    WOULD_OVERLOAD = ("would_overload", VERDICT, Trait.TYPED,
        "The plan would push a broker above overloaded_threshold, assuming that its score follows its traffic.",
        "Move less, or overrule `overload`.")
    OTHER_PLAN = ("other_plan", VERDICT, Trait.TYPED,
        "The hash belongs to no recently shown plan, or to one that was made for other fields.",
        "Give only the hash of the plan you mean, or make a new plan.")
    SHOWN_TOO_LONG_AGO = ("shown_too_long_ago", VERDICT, Trait.TYPED,
        "The manual plan is older than max_shown_plan_age_seconds.",
        "Make a new plan.")
    PLAN_USED = ("plan_used", VERDICT, Trait.TYPED,
        "A run was already started for the plan.",
        "See that run; make a new plan if it is still needed. After a stop, the same plan may be given again.")
    PLAN_UNDER_WAY = ("plan_under_way", VERDICT, Trait.TYPED,
        "Another manual plan waits for its run or is being carried out.",
        "Wait until that run ends.")
    SPLIT_STAYS = ("split_stays", VERDICT, Trait.NONE,
        "The run split the bundle, which cannot be undone: Pulsar has no merge.")
    LAST_BROKER = ("last_broker", VERDICT, Trait.TYPED,
        "No other broker in the run could take the bundles of the broker to be drained.",
        "See why the others were left out.")
    DRAIN = ("drain", VERDICT, Trait.NONE,
        "The broker is being drained: its bundles leave within the caps.")
    FILL = ("fill", VERDICT, Trait.NONE,
        "The broker gives bundles to a new one, which is filled (fill_new_brokers).")
    GIVE_BACK = ("give_back", VERDICT, Trait.NONE,
        "The broker gives bundles back to brokers that had them before.")
    DRAINING = ("draining", VERDICT, Trait.TYPED | Trait.SETTLED,
        "The broker is being drained: it gets no bundles until it is released.",
        "Release the broker, or name another one.")
    NOT_DRAINED = ("not_drained", VERDICT, Trait.TYPED | Trait.SETTLED,
        "The broker is not being drained (any more).")
    DRAINS_UNREADABLE = ("drains_unreadable", BLOCK, Trait.NONE,
        "The list of drained brokers cannot be read, so nothing is moved.",
        "Repair the storage root, or release a broker, which rewrites the marks that can be read; then drain again "
        "the brokers that are missing.")
    STOPPED = ("stopped", VERDICT, HELD,
        "A person stopped the run before the bundle's turn.",
        "To continue, give the hash of the manual plan again, or plan the rest again; waves can be cleared until "
        "another run has recorded its plan.")
    # rolling restarts
    ROLLING = ("rolling", VERDICT, Trait.CAP | Trait.TYPED,
        "A rolling restart is in force: other moves and splits wait for its end, its drain until all brokers are well.",
        "Wait for its end, or stop it: run pulsar_control__<cluster> with stop_roll. Only a run of "
        "pulsar_roll__<cluster> carries out that order: see roll_under_way if there is none.")
    ROLL_UNDER_WAY = ("roll_under_way", VERDICT, Trait.TYPED,
        "Another rolling restart is in force.",
        "Wait for its end, or run pulsar_control__<cluster> with stop_roll. If its run of pulsar_roll__<cluster> has "
        "ended or is gone, trigger that DAG with the roll's id as plan: the new run continues the roll.")
    BROKER_ROLLED = ("broker_rolled", VERDICT, Trait.NONE,
        "The broker restarted, and those of its bundles that fit are back.")
    BROKER_SKIPPED = ("broker_skipped", VERDICT, Trait.NONE,
        "A person ordered the rolling restart to skip the broker.")
    ROLLED = ("rolled", VERDICT, Trait.NONE,
        "The rolling restart is over: each broker had its turn.")
    ROLL_STOPPED = ("roll_stopped", VERDICT, Trait.SETTLED,
        "A person stopped the rolling restart, or skipped the broker.",
        "Release the broker that the message names as drained once it is up; start another roll for the rest.")
    ROLL_STUCK = ("roll_stuck", VERDICT, Trait.NONE,
        "The rolling restart made no progress for roll_wait_minutes, so it stopped.",
        "Fix the problem that the message names, then start another roll for the remaining brokers.")
    RESTART_FAILED = ("restart_failed", VERDICT, Trait.NONE,
        "The DAG that restarts brokers is missing or failed, so the rolling restart stopped.",
        "See the log of that DAG's run. Start the broker, release it, and start another roll for the rest.")
    BROKER_NOT_BACK = ("broker_not_back", VERDICT, Trait.NONE,
        "The broker did not restart, or did not report twice, within roll_wait_minutes: the roll stopped.",
        "Start the broker, release it, and start another roll for the rest. Raise roll_wait_minutes if it is slow.")
    BROKER_RENAMED = ("broker_renamed", VERDICT, Trait.NONE,
        "The restarted broker came back under another name or port, so the rolling restart stopped.",
        "Give it its former advertised address and port, or release the former name; then roll the rest.")
    # moves
    MOVED = ("moved", VERDICT, Trait.ON_PLANNED_BROKER | Trait.NEW_OWNER | Trait.SETTLED,
        "The bundle is owned by its planned broker.")
    ALREADY_THERE = ("already_there", VERDICT, Trait.ON_PLANNED_BROKER | Trait.SETTLED,
        "The bundle was already on its planned broker: nothing was unloaded.")
    OWNER_CHANGED = ("owner_changed", VERDICT, Trait.SETTLED,
        "A broker other than the planned source owns the bundle: nothing was done.")
    NO_TOPIC = ("no_topic", VERDICT, Trait.SETTLED,
        "The bundle has no loaded topic, so a lookup cannot place it: nothing was done.")
    DESTINATION_GONE = ("destination_gone", VERDICT, Trait.SETTLED,
        "The planned broker is no longer active: nothing was done.")
    ASTRAY = ("astray", VERDICT, Trait.NEW_OWNER,
        "The bundle landed on another broker, even after the retries.",
        "Nothing: it stays for the grace period; on its way back to a former broker, up to three runs in a row move "
        "it. If it happens again, see the leader's log.")
    UNOWNED = ("unowned", VERDICT, Trait.RETRIED,
        "The bundle was unloaded, but no broker owned it within the time-out.",
        "Nothing: its clients' next lookup places it; if it happens again, see the leader's log.")
    NO_LOOKUP = ("no_lookup", VERDICT, Trait.NONE,
        "The bundle was unloaded and has no owner, because the brokers refused to look up its topics.",
        "Nothing if its topics were deleted: a client's next lookup places it. Otherwise see the refusal next to this "
        "code.")
    UNKNOWN_OWNER = ("unknown_owner", VERDICT, Trait.RETRIED,
        "The bundle was unloaded, but its new owner could not be read.",
        "See the error next to this code; the next run reads the owner again.")
    UNEXPECTED_ERROR = ("unexpected_error", VERDICT, Trait.PASSING,
        "The move failed before anything was unloaded, for a reason without a code.",
        "See the traceback in the task's log.")
    NOT_ATTEMPTED = ("not_attempted", VERDICT, Trait.NOT_BEGUN,
        "The move was planned but not tried before the run ended.")
    DESTINATION_KEPT = ("destination_kept", VERDICT, Trait.NONE,
        "An unload failed after it had reached the leader, which may still use its destination when the bundle is next "
        "unloaded (before Pulsar 4.0.10 and 4.2.1: any bundle of the hash range).",
        "Nothing if the bundle may go there: the rebalancer's next move of it clears this. Otherwise unload it with "
        "the destination that you want, or restart the leader and reset the state.")
    INTERRUPTED = ("interrupted", VERDICT, Trait.RETRIED,
        "The task ended while the bundle was being moved or split; it counts as recently unloaded.")
    UNLOAD_NOT_TRIED = ("unload_not_tried", VERDICT, Trait.NONE,
        "Unloading failed, and nothing has been unloaded since: whether it works again is unknown.")
    # runs
    TASK_FAILED = ("task_failed", VERDICT, Trait.NONE,
        "A task failed for a reason that is not listed here.",
        "See the task's log.")
    RUN_TOO_LONG = ("run_too_long", VERDICT, Trait.NONE,
        "The run took longer than the interval.",
        "See which task is slow; give it more resources, or raise interval_seconds.")
    NO_RUN = ("no_run", VERDICT, Trait.NONE,
        "No run has finished for alert_after_intervals intervals.",
        "See whether the DAG is paused, a run hangs, or the workers are busy.")
    # fmt: on
