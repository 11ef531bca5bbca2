"""All reason codes, with meaning and what to do: the single list behind code, reference pages and alerts."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from pulsar_rebalancer.reasons.traits import Effect, Trait

BLOCK, HOLD, QUARANTINE, WARN, VERDICT = Effect

HELD = Trait.NOT_BEGUN | Trait.RETRIED | Trait.NEEDS_PERSON


class Reason(StrEnum):
    """A reason for a decision or a result. The value is the code in files, XComs and messages; it never changes.

    `effect` is the effect on the run if validation reports the reason. `meaning` says what was observed, and
    `action` what to do; empty if no action is necessary. The module is long: an enumeration is one class.
    """

    effect: Effect
    traits: Trait
    meaning: str
    action: str

    def __new__(
        cls, code: str, effect: Effect = VERDICT, traits: Trait = Trait.NONE, meaning: str = "", action: str = ""
    ) -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.effect, member.traits, member.meaning, member.action = effect, traits, meaning, action
        return member

    def has(self, trait: Trait) -> bool:
        return bool(self.traits & trait)

    @classmethod
    def get(cls, code: str) -> Reason | None:
        """Return the reason with this code; None if this release has no such code."""
        return cls._value2member_map_.get(code)  # type: ignore[return-value]

    @classmethod
    def with_trait(cls, trait: Trait) -> frozenset[Reason]:
        return frozenset(reason for reason in cls if reason.has(trait))

    # One line for code, effect and traits, one for the meaning, one for the action.
    # fmt: off
    # settings
    WRONG_SETTING = ("wrong_setting", BLOCK, HELD | Trait.TYPED,
        "A setting or a form's field is missing or wrong.",
        "Correct the setting or field that the message names. The clusters file overrides the brokers' settings.")
    SPARK_UNREACHABLE = ("spark_unreachable", BLOCK, Trait.PASSING,
        "The Airflow connection in spark_connection is missing, or its Spark server has stopped or refuses requests.",
        "Add or correct the connection, check the secrets backend, or start the Spark server again.")
    CONTRADICTION = ("contradiction", BLOCK, Trait.TYPED,
        "Two settings or form fields contradict each other.",
        "Change one of the values that the message names.")
    MODE_OFF = ("mode_off", VERDICT, Trait.NONE,
        "The cluster is in mode off.",
        "Set another mode in the clusters file.")
    # admin REST API
    UNREACHABLE = ("unreachable", QUARANTINE, Trait.PASSING | Trait.NO_ANSWER,
        "A broker did not accept a connection.",
        "Check that the broker runs and that the workers can reach it.")
    TIMEOUT = ("timeout", QUARANTINE, Trait.PASSING | Trait.NO_ANSWER,
        "A broker did not answer in time.",
        "Check the broker's load, and the time-out in the Airflow connection.")
    CERTIFICATE_REFUSED = ("certificate_refused", QUARANTINE,
        Trait.NO_ANSWER | Trait.NOT_UNLOADED | Trait.MAY_HAVE_PLAN | Trait.NEEDS_PERSON,
        "A broker's certificate could not be verified, so no request was sent.",
        "Check ca_file, and the host name in the certificate.")
    UNAUTHORIZED = ("unauthorized", BLOCK, Trait.CREDENTIALS | Trait.NOT_UNLOADED | Trait.NEEDS_PERSON,
        "The credentials were refused, or have expired (401).",
        "Give the connection a valid super-user token. If the token is new, check all clocks, and compare issuer_url, "
        "audience and scope with the brokers' openIDAllowedTokenIssuers and openIDAllowedAudiences.")
    FORBIDDEN = ("forbidden", BLOCK, Trait.CREDENTIALS | Trait.NOT_UNLOADED | Trait.NEEDS_PERSON,
        "The credentials lack permission (403, or a 401 that gives a reason).",
        "Add the role of the credentials to the brokers' superUserRoles.")
    CREDENTIALS_FILE = ("credentials_file", BLOCK, Trait.CREDENTIALS | Trait.NOT_UNLOADED | Trait.PASSING,
        "The token_file or credentials_file is missing, unreadable or malformed.",
        "On the workers, check the file, its permissions, and the job that replaces it.")
    ISSUER_UNAVAILABLE = ("issuer_unavailable", BLOCK, Trait.CREDENTIALS | Trait.NOT_UNLOADED | Trait.PASSING,
        "The token issuer did not answer, or its answer contains no token.",
        "Check the issuer service, issuer_url and ca_file.")
    ISSUER_REFUSED = ("issuer_refused", BLOCK, Trait.CREDENTIALS | Trait.NOT_UNLOADED | Trait.NEEDS_PERSON,
        "The token issuer refused to issue a token (400, 401 or 403).",
        "Replace an expired client secret; check audience and scope.")
    NOT_FOUND = ("not_found", VERDICT, Trait.NOT_UNLOADED | Trait.SETTLED,
        "Pulsar does not know the namespace, bundle, topic or broker (404).")
    SERVER_ERROR = ("server_error", VERDICT, Trait.PASSING,
        "The broker failed to process the request (5xx).",
        "Check the broker's log.")
    NO_LOAD_REPORT = ("no_load_report", BLOCK, Trait.NONE,
        "The brokers' load manager provides no load reports.",
        "Use ModularLoadManagerImpl or ExtensibleLoadManagerImpl.")
    FOREIGN_ADDRESS = ("foreign_address", VERDICT, Trait.NOT_UNLOADED | Trait.MAY_HAVE_PLAN | Trait.NEEDS_PERSON,
        "A broker's redirect or service URL is missing, or the host in the URL is outside the cluster.",
        "Add the broker to the address map, correct its advertised address, or set service_url.")
    BAD_ANSWER = ("bad_answer", VERDICT, Trait.PASSING,
        "A broker's answer was malformed, too large, not JSON, or part of a loop of redirects.",
        "Check that the address belongs to a broker, not a proxy; check the brokers' advertised addresses.")
    READ_ONLY = ("read_only", VERDICT, Trait.NOT_UNLOADED | Trait.NEEDS_PERSON,
        "The connection is read-only; the request was not sent.",
        "To allow changes, remove read_only from the connection.")
    # state
    STATE_LOST = ("state_lost", BLOCK, HELD,
        "Documents of the state store are missing or unreadable, so nothing is moved.",
        "Run pulsar_control__<cluster> with restore or reset, and then repeat the lost orders.")
    STALE_PLAN = ("stale_plan", BLOCK, Trait.NONE,
        "The stored state has changed since this plan was made, or belongs to a different plan.",
        "The next run makes a new plan.")
    # validation
    TOO_FEW_BROKERS = ("too_few_brokers", BLOCK, Trait.NONE,
        "Fewer than two brokers can be compared.",
        "See why the other brokers were left out.")
    REPORT_MISSING = ("report_missing", QUARANTINE, Trait.NONE,
        "A broker returned no load report.",
        "Check the broker; the message names the cause.")
    BAD_REPORT_TIME = ("bad_report_time", QUARANTINE, Trait.NONE,
        "A load report is older than the brokers' longest report interval, or dated in the future.",
        "Synchronise the clocks of brokers and workers; check the metadata store.")
    BAD_VALUE = ("bad_value", QUARANTINE, Trait.NONE,
        "A value in a load report is missing, malformed, negative, or higher than any machine can reach.",
        "Check the broker's version and report.")
    LOAD_IN_DOUBT = ("load_in_doubt", QUARANTINE, Trait.NONE,
        "A resource that counts for the broker's score has no limit, or its usage is more than twice its limit.",
        "Check CPU quota, memory settings and loadBalancerOverrideBrokerNicSpeedGbps.")
    TRAFFIC_IN_DOUBT = ("traffic_in_doubt", QUARANTINE, Trait.NONE,
        "The bundles that validation left out carry more than a quarter of the broker's traffic.",
        "See why these bundles were left out.")
    WRONG_BROKER = ("wrong_broker", QUARANTINE, Trait.NONE,
        "The broker's address returned another broker's load report.",
        "Map each broker to its own address, not to a proxy.")
    DOUBTFUL_LIMIT = ("doubtful_limit", WARN, Trait.NONE,
        "A resource is used far above its limit, or a resource other than CPU has no limit and scores 0.",
        "Check CPU quota, memory settings and loadBalancerOverrideBrokerNicSpeedGbps.")
    LISTED_TWICE = ("listed_twice", WARN, Trait.NONE,
        "The cluster lists a broker twice; the broker was counted once.",
        "Look for two brokers with the same advertised address.")
    UNMATCHED_EXCLUSION = ("unmatched_exclusion", WARN, Trait.NONE,
        "An excluded broker is not active, or an entry of excluded_bundles matches no reported bundle.",
        "Check the spelling: advertisedAddress:port for a broker, tenant/namespace/0x…_0x… for a bundle.")
    SUMS_DISAGREE = ("sums_disagree", WARN, Trait.NONE,
        "A broker's traffic differs from the sum of its bundles' traffic; the broker's own value is used.",
        "Check the broker's report if this happens again.")
    SUITE_FAILED = ("suite_failed", BLOCK, Trait.NONE,
        "Validation could not evaluate an expectation.",
        "Correct the suite or expectation that the message names.")
    JUST_STARTED = ("just_started", QUARANTINE, Trait.EXPECTED,
        "The broker looks idle, because it has measured its host's usage fewer than twice since its start.",
        "Wait: runs include the broker after its second measurement.")
    TWO_OWNERS = ("two_owners", QUARANTINE, Trait.NONE,
        "Two brokers report the same bundle.",
        "This is normal for one interval after a move.")
    TOO_MANY_QUARANTINED = ("too_many_quarantined", BLOCK, Trait.NONE,
        "Validation left out more brokers than max_quarantined_brokers allows.",
        "Repair the brokers, or raise the limit.")
    BUILTIN_SHEDDING_ON = ("builtin_shedding_on", HOLD, Trait.NONE,
        "Pulsar's own shedding is on, so two balancers would undo each other's moves.",
        "Run pulsar-admin brokers update-dynamic-config --config loadBalancerSheddingEnabled --value false.")
    OLD_BROKER = ("old_broker", HOLD, Trait.NONE,
        "Brokers before Pulsar 3.0 ignore unload destinations; brokers before 2.11 cannot split at given positions.",
        "Upgrade the broker to Pulsar 3.0 or later; until then, use mode observe.")
    LEADER_UNREAD = ("leader_unread", HOLD, Trait.NONE,
        "The leader's configuration cannot be read, so Pulsar's own shedding may be on.",
        "If no leader election is in progress, check the permissions of the rebalancer's role.")
    BROKERS_DISAGREE = ("brokers_disagree", WARN, Trait.NONE,
        "Brokers run with different settings; the leader's settings apply.",
        "Give all brokers the same settings.")
    POLICY_UNREADABLE = ("policy_unreadable", HOLD, Trait.NONE,
        "Isolation policies could not be read, so no bundle may move.",
        "Check the policy in the message, and the role's permissions.")
    POLICY_UNCLEAR = ("policy_unclear", WARN, Trait.NONE,
        "An isolation policy could not be read, or matches no active broker, so the bundles of its namespaces stay.",
        "Check the policy in the message, and the role's permissions.")
    # files
    FILE_MISSING = ("file_missing", BLOCK, Trait.NONE,
        "A file of the run is missing.",
        "Check that all workers and Spark can access the storage root.")
    STORAGE_FAILED = ("storage_failed", BLOCK, Trait.PASSING,
        "The storage root is full, unreachable, or denies permission.",
        "Free storage space, or check permissions and the network connection.")
    FILE_DAMAGED = ("file_damaged", BLOCK, Trait.NONE,
        "A file of the run cannot be read, or has an unknown format version.",
        "Clear the task `collect`, and check the disk.")
    PLAN_CHANGED = ("plan_changed", BLOCK, Trait.NONE,
        "A plan's files were changed, so nothing was carried out.",
        "Find out who wrote to the storage root.")
    SPARK_FAILED = ("spark_failed", BLOCK, Trait.PASSING,
        "The Spark application ended without a result.",
        "See the last lines of the task's log.")
    BAD_RESULT = ("bad_result", BLOCK, Trait.NONE,
        "The strategy returned an impossible move: a wrong bundle or broker, a bundle twice, or an invalid value.",
        "Correct the custom shedder, or choose another strategy.")
    NOT_RECOMMENDED = ("not_recommended", WARN, Trait.NONE,
        "Pulsar's authors or our experiments advise against a setting, or one broker has too many system bundles.",
        "Use settings from docs/strategies.md, or compare yours in a replay. With too many system bundles, unload one.")
    # counting
    COUNTED = ("counted", VERDICT, Trait.NONE,
        "The sample was counted.")
    TOO_SOON = ("too_soon", VERDICT, Trait.WAITING,
        "The brokers have not measured their load again since the last counted sample.")
    GAP = ("gap", WARN, Trait.NONE,
        "Hits restart at zero, because the last counted sample is too old, in the future, or from another strategy.",
        "If you did not change the strategy, find out why runs are missing, or check the workers' clocks.")
    FORCED = ("forced", VERDICT, Trait.NONE,
        "A forced run does not wait for hits, and does not count hits.")
    OTHER_THRESHOLDS = ("other_thresholds", VERDICT, Trait.NONE,
        "The run's parameters set other thresholds, so the run counts no hits.")
    BY_HAND = ("by_hand", VERDICT, Trait.NONE,
        "A manual plan counts no hits.")
    # brokers and pairs
    FEW_BUNDLES = ("few_bundles", WARN, Trait.STUCK,
        "A broker has only one bundle, or a busy namespace has fewer bundles than there are brokers.",
        "Split the largest bundle, or give the namespace more bundles.")
    BALANCED = ("balanced", VERDICT, Trait.NONE,
        "The load, or the gap between two brokers, is below the threshold.")
    HIT_COUNT = ("hit_count", VERDICT, Trait.WAITING,
        "A threshold is reached, but not yet in enough samples.")
    COOL_DOWN = ("cool_down", VERDICT, Trait.WAITING,
        "The broker's last unload was too recent.")
    OUTDATED = ("outdated", VERDICT, Trait.NONE,
        "The broker's report is missing, or older than load_data_ttl_seconds.",
        "Check the broker's clock and the metadata store.")
    NO_TOP_BUNDLES = ("no_top_bundles", VERDICT, Trait.STUCK,
        "The broker has no top bundle that the strategy may move.",
        "Check the broker's traffic, policies and excluded namespaces.")
    FIRED = ("fired", VERDICT, Trait.NONE,
        "Bundles have to move, because enough samples reached the threshold.")
    BELOW_MINIMUM = ("below_minimum", VERDICT, Trait.STUCK,
        "The traffic to move is below the minimum; hits are reset.")
    NO_FITTING_BUNDLE = ("no_fitting_bundle", VERDICT, Trait.STUCK,
        "Moves are due, but no bundle has the right size; hits are reset.")
    NO_ALLOWED_BUNDLE = ("no_allowed_bundle", VERDICT, Trait.STUCK,
        "Moves are due, but policies or placement keep every suitable bundle in place; hits are reset.",
        "See the bundles' reasons.")
    NO_GAIN = ("no_gain", VERDICT, Trait.STUCK,
        "Moves are due, but no move is worth its price; hits are reset.")
    MEMORY_DECIDES = ("memory_decides", VERDICT, Trait.NONE,
        "Direct memory determines the scores, so the shedder follows the rules of AvgShedder.")
    NO_PARTNER = ("no_partner", VERDICT, Trait.NONE,
        "The broker has no partner, because it is not the busiest or has the middle score of an odd number of brokers.")
    # bundles
    TAKEN = ("taken", VERDICT, Trait.NONE,
        "The bundle is moved.")
    OVER_REMAINING = ("over_remaining", VERDICT, Trait.NONE,
        "The bundle carries more traffic than is left to move.")
    BELOW_SHARE = ("below_share", VERDICT, Trait.NONE,
        "The bundle carries less than `min_bundle_share` of the traffic to move.")
    BELOW_GAIN = ("below_gain", VERDICT, Trait.NONE,
        "The move would gain less than its price, either now or after better bundles have moved.")
    WOULD_OVERSHOOT = ("would_overshoot", VERDICT, Trait.NONE,
        "The move would take both brokers further from the mean.")
    NOT_REACHED = ("not_reached", VERDICT, Trait.NONE,
        "This broker or bundle was not considered, because enough traffic already moves or a cap is reached.")
    NO_TRAFFIC = ("no_traffic", VERDICT, Trait.NONE,
        "The bundle carries no traffic in the unit that the strategy balances (msg/s or bytes/s).")
    RECENTLY_UNLOADED = ("recently_unloaded", VERDICT, Trait.NONE,
        "The bundle was moved within the grace period.")
    SYSTEM_NAMESPACE = ("system_namespace", VERDICT, Trait.NONE,
        "The namespace is a heartbeat namespace, an SLA namespace, or pulsar/system while move_system_bundles is off.")
    POLICY_UNKNOWN = ("policy_unknown", VERDICT, Trait.KEPT_IN_PLACE,
        "The namespace's policies could not be read.",
        "See the finding policy_unclear or policy_unreadable.")
    POLICY_FORBIDS = ("policy_forbids", VERDICT, Trait.KEPT_IN_PLACE,
        "Policies forbid the planned broker or allow only the current one, or shed_policy_bundles is off.",
        "To allow more brokers, change the policies.")
    ANTI_AFFINITY = ("anti_affinity", VERDICT, Trait.KEPT_IN_PLACE,
        "The anti-affinity group is evenly spread, would be less even after the move, or has a move in this run.")
    TOO_MANY_TOPICS = ("too_many_topics", VERDICT, Trait.KEPT_IN_PLACE,
        "The planned broker exceeds max_broker_topics; other brokers are within this limit.")
    NO_DESTINATION = ("no_destination", VERDICT, Trait.KEPT_IN_PLACE,
        "No broker that the run compares may receive the bundle.",
        "See why brokers were left out.")
    SAME_BROKER = ("same_broker", VERDICT, Trait.KEPT_IN_PLACE,
        "Placement chose the bundle's current owner.")
    NAMESPACE_EXCLUDED = ("namespace_excluded", VERDICT, Trait.SETTLED,
        "The namespace is excluded by a setting, or frozen by an order.")
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
        "The move would exceed max_bytes_per_run.",
        "A later run moves the bundle, unless this bundle's traffic exceeds the limit.")
    CAP_WAVES = ("cap_waves", VERDICT, Trait.CAP,
        "The run already moves too many bundles with the same hash range in other namespaces.",
        "The bundle moves when its pair fires again.")
    BROKER_QUARANTINED = ("broker_quarantined", VERDICT, Trait.NONE,
        "Validation left the broker out.")
    NO_PERSISTENT_TOPICS = ("no_persistent_topics", VERDICT, Trait.NONE,
        "Policies keep persistent topics off the broker, so the broker is in no pair.")
    BROKER_EXCLUDED = ("broker_excluded", VERDICT, Trait.SETTLED,
        "The broker is excluded by a setting.")
    # splits, as planned
    TO_BE_SPLIT = ("to_be_split", VERDICT, Trait.NONE,
        "The bundle will be split; its parts may move later.")
    SPLIT_OBSERVED = ("split_observed", VERDICT, Trait.NONE,
        "The bundle would be split if split_mode were auto.",
        "Set split_mode to auto to split the bundle.")
    BUILTIN_SPLITTING_ON = ("builtin_splitting_on", VERDICT, Trait.NONE,
        "A broker splits bundles itself (loadBalancerAutoBundleSplitEnabled).",
        "Leave splits to the brokers, or set loadBalancerAutoBundleSplitEnabled to false.")
    RECENTLY_SPLIT = ("recently_split", VERDICT, Trait.NONE,
        "The bundle was created by a split within the last hour.")
    TOPICS_UNKNOWN = ("topics_unknown", VERDICT, Trait.NONE,
        "The bundle's topics or the namespace's bundle bounds were not read.",
        "See the log of the task collect.")
    NO_POSITION = ("no_position", VERDICT, Trait.NONE,
        "The bundle has only one topic, or the chosen positions do not cut its hash range into wide enough parts.",
        "Choose other positions or another algorithm.")
    UNEVEN_SPLIT = ("uneven_split", VERDICT, Trait.NONE,
        "A part would carry less than 10 % of the bundle's traffic, and a split is permanent.",
        "Choose another algorithm, or overrule even_split in a manual plan.")
    NAMESPACE_FULL = ("namespace_full", VERDICT, Trait.SETTLED,
        "The split would give the namespace more than max_namespace_bundles bundles.",
        "Raise loadBalancerNamespaceMaximumBundles to allow more.")
    CAP_SPLITS = ("cap_splits", VERDICT, Trait.NONE,
        "The run or the broker has reached its maximum number of splits.",
        "A later run splits the bundle.")
    # splits, as carried out
    SPLIT = ("split", VERDICT, Trait.SPLIT_AS_PLANNED | Trait.SETTLED,
        "The bundle was split at the planned positions.")
    RANGE_GONE = ("range_gone", VERDICT, Trait.NOT_UNLOADED | Trait.SETTLED,
        "The bundle no longer exists because it was split; nothing was done.",
        "The next run sees the new bundles.")
    SPLIT_ELSEWHERE = ("split_elsewhere", VERDICT, Trait.NONE,
        "Somebody else split the bundle at other positions.",
        "Find out who splits bundles of the namespace.")
    NOT_SPLIT = ("not_split", VERDICT, Trait.NONE,
        "The broker refused the split (412), or accepted the request without changing the bundle bounds.",
        "Check the bundle's topics, supportedNamespaceBundleSplitAlgorithms and the owner's log.")
    # gate
    OPEN = ("open", VERDICT, Trait.NONE,
        "The gate is open: the plan will be carried out.")
    BLOCKED = ("blocked", VERDICT, Trait.NONE,
        "Validation stopped the run.",
        "See the run's findings whose effect is `block`.")
    UNFINISHED = ("unfinished", VERDICT, Trait.NONE,
        "The run ended before it reached the gate.",
        "See the log of the failed task.")
    NOTHING_TO_DO = ("nothing_to_do", VERDICT, Trait.NONE,
        "The plan moves nothing.")
    OBSERVE = ("observe", VERDICT, HELD | Trait.ORDERED,
        "Nothing is moved, because the mode is observe.")
    PAUSED = ("paused", VERDICT, HELD | Trait.ORDERED,
        "The cluster is paused.",
        "Wait, or lift the pause: run pulsar_control__<cluster> with resume, or edit the clusters file.")
    AWAITING_APPROVAL = ("awaiting_approval", VERDICT, HELD | Trait.ORDERED,
        "The plan waits for a person's approval.",
        "Approve or reject the plan in pulsar_apply__<cluster>.")
    REJECTED = ("rejected", VERDICT, Trait.NONE,
        "A person rejected these moves within the last max_awaiting_minutes.",
        "To move these bundles sooner, make a manual plan.")
    SAME_PERSON = ("same_person", VERDICT, Trait.TYPED,
        "Nobody may approve or carry out a plan that they requested (two_people).",
        "Ask another person to approve or carry out the plan.")
    NO_USER = ("no_user", VERDICT, Trait.TYPED,
        "The plan has no known requester or approver: a task started or someone cleared the run, or nobody signed in.",
        "Sign in, and make or approve the plan again. Before you repeat a drain, release the broker.")
    DAG_PAUSED = ("dag_paused", VERDICT, Trait.TYPED,
        "The DAG that would carry out the plan is paused in Airflow.",
        "Unpause pulsar_rebalance__<cluster>, then approve or submit the plan again.")
    NOT_WHOLE = ("not_whole", VERDICT, Trait.TYPED,
        "Part of the approved plan can no longer be carried out, so nothing was done.",
        "Wait for the next plan.")
    BREAKER_OPEN = ("breaker_open", VERDICT, HELD | Trait.ORDERED,
        "The circuit breaker is open, because many brokers are faulty, moves failed, or the score range grew.",
        "Wait, or run pulsar_control__<cluster> with close_breaker.")
    BLACKOUT = ("blackout", VERDICT, HELD | Trait.ORDERED,
        "A blackout of the clusters file is in force.",
        "The message says when bundles may move again.")
    OUTSIDE_WINDOW = ("outside_window", VERDICT, HELD | Trait.ORDERED,
        "No maintenance window of the clusters file is open.",
        "The message says when bundles may move again.")
    SKIPPED = ("skipped", VERDICT, Trait.NONE,
        "A person skipped this run.",
        "The next run may act.")
    ON_HOLD = ("on_hold", VERDICT, Trait.NONE,
        "A finding of validation keeps the gate closed.",
        "See the run's findings with the effect hold.")
    PLAN_TOO_OLD = ("plan_too_old", VERDICT, Trait.NONE,
        "The plan is older than max_plan_age_seconds (later waves: plus five minutes).",
        "The next run makes a new plan.")
    SETTINGS_CHANGED = ("settings_changed", VERDICT, Trait.NONE,
        "The clusters file now has lower caps, or names another connection or Pulsar cluster.",
        "The next run makes a new plan.")
    FOREIGN_RUN = ("foreign_run", VERDICT, Trait.NONE,
        "A task received the folder of another run or cluster.",
        "Clear the task `collect` and all later tasks, and find out who may write XComs.")
    # plans made by hand
    UNKNOWN_NAME = ("unknown_name", VERDICT, Trait.TYPED,
        "No broker reports the bundle (split, deleted, or without loaded topics), or no active broker has this name.",
        "Check the name: /admin/v2/brokers lists the brokers.")
    WOULD_OVERLOAD = ("would_overload", VERDICT, Trait.TYPED,
        "The traffic of the planned moves would raise a broker's score above overloaded_threshold.",
        "Move less, or overrule `overload`.")
    OTHER_PLAN = ("other_plan", VERDICT, Trait.TYPED,
        "No plan with this hash and these fields was shown recently.",
        "Give only the hash, or make a new plan.")
    PLAN_EXPIRED = ("plan_expired", VERDICT, Trait.TYPED,
        "The plan is older than max_awaiting_minutes, or a newer plan replaced it.",
        "Make a new manual plan, or wait for the next plan to approve.")
    PLAN_USED = ("plan_used", VERDICT, Trait.TYPED,
        "A run was already started for the plan.",
        "See that run. If the run was stopped, you may submit the plan again.")
    PLAN_UNDER_WAY = ("plan_under_way", VERDICT, Trait.TYPED,
        "Another manual plan is queued or being carried out.",
        "Wait until that plan ends.")
    LAST_BROKER = ("last_broker", VERDICT, Trait.TYPED,
        "No other broker could take the drained broker's bundles.",
        "See why the other brokers were left out.")
    DRAIN = ("drain", VERDICT, Trait.NONE,
        "The broker is being drained: its bundles leave within the caps.")
    FILL = ("fill", VERDICT, Trait.NONE,
        "The broker gives bundles to a new broker (fill_new_brokers).")
    GIVE_BACK = ("give_back", VERDICT, Trait.NONE,
        "The broker gives bundles back to their former brokers.")
    DRAINING = ("draining", VERDICT, Trait.TYPED | Trait.SETTLED,
        "A drained broker gets no bundles until it is released.",
        "Release the broker, or name another broker.")
    NOT_DRAINED = ("not_drained", VERDICT, Trait.TYPED | Trait.SETTLED,
        "The broker is not drained.")
    STOPPED = ("stopped", VERDICT, HELD,
        "A person stopped the run before the bundle's turn.",
        "To continue, submit the plan hash again.")
    # rolling restarts
    ROLLING = ("rolling", VERDICT, Trait.CAP | Trait.TYPED,
        "A rolling restart is in progress, so other moves and splits wait.",
        "Wait, or run pulsar_control__<cluster> with stop_roll. If no run continues the roll, trigger "
        "pulsar_roll__<cluster> with the roll's id as plan.")
    ROLLED = ("rolled", VERDICT, Trait.NONE,
        "The broker (or each broker of the roll) has restarted; all bundles that fit have returned.")
    ROLL_STOPPED = ("roll_stopped", VERDICT, Trait.SETTLED,
        "A person stopped the rolling restart, or skipped the broker.",
        "Release the drained broker once it is up; then restart the other brokers.")
    ROLL_STUCK = ("roll_stuck", VERDICT, Trait.NONE,
        "The rolling restart stopped after roll_wait_minutes without progress.",
        "Fix the problem, then restart the other brokers.")
    RESTART_FAILED = ("restart_failed", VERDICT, Trait.NONE,
        "The DAG that restarts brokers is missing or failed, so the roll stopped.",
        "See the DAG's log. Start and release the broker, then restart the other brokers.")
    BROKER_NOT_BACK = ("broker_not_back", VERDICT, Trait.NONE,
        "The broker sent fewer than two reports under its name within roll_wait_minutes, so the roll stopped.",
        "Start the broker under its former address, or release its former name; then restart the other brokers. If "
        "brokers start slowly, raise roll_wait_minutes.")
    # moves
    MOVED = ("moved", VERDICT, Trait.ON_PLANNED_BROKER | Trait.NEW_OWNER | Trait.SETTLED,
        "The planned broker owns the bundle.")
    ALREADY_THERE = ("already_there", VERDICT, Trait.ON_PLANNED_BROKER | Trait.SETTLED,
        "The bundle was already on its planned broker, so nothing was unloaded.")
    OWNER_CHANGED = ("owner_changed", VERDICT, Trait.SETTLED,
        "A broker other than the planned source owns the bundle, so nothing was done.")
    NO_TOPIC = ("no_topic", VERDICT, Trait.SETTLED,
        "The bundle has no loaded topic to look up, so nothing was done.")
    DESTINATION_GONE = ("destination_gone", VERDICT, Trait.NOT_UNLOADED | Trait.SETTLED,
        "The planned broker is no longer active, so nothing was done.",
        "The next run makes a new plan.")
    ASTRAY = ("astray", VERDICT, Trait.NEW_OWNER,
        "Even after retries, the bundle landed on a broker other than planned.",
        "The bundle stays on that broker for the grace period. If this happens again, see the leader's log.")
    NO_LOOKUP = ("no_lookup", VERDICT, Trait.NONE,
        "The bundle was unloaded, but brokers refused to look up its topics.",
        "Brokers refuse lookups of deleted topics. If the topics still exist, see the brokers' answers.")
    UNKNOWN_OWNER = ("unknown_owner", VERDICT, Trait.RETRIED,
        "The bundle was unloaded, but no new owner was seen within the time-out.",
        "The next lookup by a client places the bundle. If this happens again, see the leader's log.")
    NOT_ATTEMPTED = ("not_attempted", VERDICT, Trait.NOT_BEGUN,
        "The run ended before the planned move was tried.")
    DESTINATION_KEPT = ("destination_kept", VERDICT, Trait.NONE,
        "An unload reached the leader but failed. The leader may still use the planned destination for "
        "the bundle's next unload (before Pulsar 4.0.10 and 4.2.1: for any bundle with the same hash range).",
        "Unload the bundle with the destination you want, or restart the leader and reset the state.")
    INTERRUPTED = ("interrupted", VERDICT, Trait.RETRIED,
        "The task ended during the move or split, so later runs treat the bundle as recently unloaded.")
    UNLOAD_NOT_TRIED = ("unload_not_tried", VERDICT, Trait.NONE,
        "An unload failed, and no run has tried an unload since.")
    # runs
    TASK_FAILED = ("task_failed", VERDICT, Trait.PASSING,
        "A task, move or split failed for a reason that has no code.",
        "See the task's log.")
    RUN_TOO_LONG = ("run_too_long", VERDICT, Trait.NONE,
        "The run took longer than the interval.",
        "Speed up the slowest task, or raise interval_seconds.")
    NO_RUN = ("no_run", VERDICT, Trait.NONE,
        "No run has finished recently enough.",
        "Check whether the DAG is paused, a run hangs, or workers are busy.")


_PHRASES = {
    Reason.OVER_REMAINING: "did not fit",
    Reason.BELOW_SHARE: "too small",
    Reason.BELOW_GAIN: "would gain too little",
    Reason.WOULD_OVERSHOOT: "would overshoot",
    Reason.NOT_REACHED: "not needed",
    Reason.NO_TRAFFIC: "without traffic",
    Reason.RECENTLY_UNLOADED: "moved recently",
    Reason.DESTINATION_KEPT: "moved recently (the leader may still store a destination)",
    Reason.SYSTEM_NAMESPACE: "in system namespaces",
    Reason.NAMESPACE_EXCLUDED: "excluded",
    Reason.BUNDLE_EXCLUDED: "excluded",
    Reason.BROKER_EXCLUDED: "excluded",
    Reason.BUNDLE_QUARANTINED: "left out by validation",
    Reason.BROKER_QUARANTINED: "on a broker that validation left out",
    Reason.JUST_STARTED: "just started",
    Reason.BAD_REPORT_TIME: "with an outdated or future report",
    Reason.BAD_VALUE: "with a bad value",
    Reason.TRAFFIC_IN_DOUBT: "with doubtful traffic",
    Reason.POLICY_UNKNOWN: "with unknown policies",
    Reason.POLICY_FORBIDS: "kept by isolation policies",
    Reason.ANTI_AFFINITY: "kept by anti-affinity",
    Reason.TOO_MANY_TOPICS: "kept by max_broker_topics",
    Reason.NO_DESTINATION: "without a destination",
    Reason.SAME_BROKER: "kept by placement",
    Reason.TO_BE_SPLIT: "split instead",
    Reason.CAP_RUN: "over the cap per run",
    Reason.CAP_BROKER: "over the cap per broker",
    Reason.CAP_NAMESPACE: "over the cap per namespace",
    Reason.CAP_BYTES: "over the cap of bytes per run",
    Reason.CAP_WAVES: "over the limit per hash range",
    Reason.WOULD_OVERLOAD: "would overload a broker",
    Reason.DRAINING: "drained",
    Reason.ROLLING: "held back by the rolling restart",
    Reason.NO_TOPIC: "without topics",
    Reason.UNKNOWN_NAME: "not found",
    Reason.OWNER_CHANGED: "moved elsewhere in the meantime",
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


def reasons_text(counts: Mapping[Reason, int]) -> str:
    """Return text such as "17 did not fit, 2 excluded", the largest number first; empty without counts."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {_PHRASES.get(reason, f'({reason}: {reason.meaning})')}" for reason, count in ordered)
