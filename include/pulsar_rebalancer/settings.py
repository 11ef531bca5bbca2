"""The validated settings of one cluster.

Load-balancer settings have Pulsar's meaning and are accepted under Pulsar's name as well as under ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from pulsar_rebalancer.choices import Mode, Placement, Strategy
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.names import Brokers, Namespaces

if TYPE_CHECKING:
    from collections.abc import Mapping


class Pause(BaseModel):
    """A pause of one cluster: decisions go on, nothing is moved."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    until: AwareDatetime = Field(description="end of the pause, with a time zone")
    reason: str = Field(min_length=1, max_length=500, description="why, shown in every run")


Percent = Annotated[float, Field(ge=0, le=1000)]
Weight = Annotated[float, Field(ge=0, le=100)]


class Settings(BaseModel):
    """Effective settings of one cluster.

    Fields with an alias carry Pulsar's own name and may come from the live brokers; the others come from the
    clusters file or from a manual run alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)

    # Pulsar's load-balancer settings; defaults of Pulsar 5.0 (PULSAR's ServiceConfiguration).
    low_threshold: Percent = Field(
        15,
        alias="loadBalancerAvgShedderLowThreshold",
        description="gap of a pair that counts a hit, points of score",
    )
    high_threshold: Percent = Field(
        40,
        alias="loadBalancerAvgShedderHighThreshold",
        description="gap that counts a high hit as well, points of score",
    )
    hit_count_low: int = Field(
        8,
        ge=1,
        alias="loadBalancerAvgShedderHitCountLowThreshold",
        description="consecutive low hits until a pair fires",
    )
    hit_count_high: int = Field(
        2,
        ge=1,
        alias="loadBalancerAvgShedderHitCountHighThreshold",
        description="consecutive high hits until a pair fires",
    )
    min_unload_message: float = Field(
        1000, ge=0, alias="minUnloadMessage", description="smallest message rate worth moving, msg/s"
    )
    min_unload_throughput: float = Field(
        1048576,
        ge=0,
        alias="minUnloadMessageThroughput",
        description="smallest throughput worth moving, bytes/s",
    )
    max_unload_percentage: float = Field(
        0.5,
        gt=0,
        le=1,
        alias="maxUnloadPercentage",
        description="share of a pair's difference that is moved, ratio",
    )
    cpu_weight: Weight = Field(1.0, alias="loadBalancerCPUResourceWeight", description="weight of CPU in the score")
    direct_memory_weight: Weight = Field(
        0.0,
        alias="loadBalancerDirectMemoryResourceWeight",
        description="weight of direct memory in the score",
    )
    bandwidth_in_weight: Weight = Field(
        1.0,
        alias="loadBalancerBandwidthInResourceWeight",
        description="weight of inbound bandwidth in the score",
    )
    bandwidth_out_weight: Weight = Field(
        1.0,
        alias="loadBalancerBandwidthOutResourceWeight",
        description="weight of outbound bandwidth in the score",
    )
    memory_weight: Weight = Field(
        0.0,
        alias="loadBalancerMemoryResourceWeight",
        description="weight of the JVM heap, which the extensible load manager alone looks at",
    )
    history_percentage: float = Field(
        0.9,
        ge=0,
        le=1,
        alias="loadBalancerHistoryResourcePercentage",
        description="weight of the past in a broker's moving average, ratio",
    )
    average_threshold: Percent = Field(
        10,
        alias="loadBalancerBrokerThresholdShedderPercentage",
        description="ThresholdShedder: points above the average from which a broker sheds",
    )
    min_unload_bundle_throughput: float = Field(
        10,
        ge=0,
        alias="loadBalancerBundleUnloadMinThroughputThreshold",
        description="ThresholdShedder: smallest throughput worth moving, MiB/s",
    )
    lower_boundary: bool = Field(
        False,
        alias="lowerBoundarySheddingEnabled",
        description="ThresholdShedder: shed as well when a broker is that far below the average",
    )
    overloaded_threshold: Percent = Field(
        85,
        alias="loadBalancerBrokerOverloadedThresholdPercentage",
        description="score above which a broker is overloaded, percent",
    )
    rate_difference: float = Field(
        50,
        alias="loadBalancerMsgRateDifferenceShedderThreshold",
        description="UniformLoadShedder: message rate of the busiest broker over the idlest, percent; 0: not looked at",
    )
    throughput_ratio: float = Field(
        4,
        alias="loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold",
        description="UniformLoadShedder: throughput of the busiest broker by the idlest, ratio; 0: not looked at",
    )
    max_unload_bundles: int = Field(
        -1,
        ge=-1,
        alias="maxUnloadBundleNumPerShedding",
        description="UniformLoadShedder: bundles shed in one run; -1: no cap",
    )
    target_std: float = Field(
        0.25,
        ge=0,
        alias="loadBalancerBrokerLoadTargetStd",
        description="TransferShedder: standard deviation of the loads to aim at, 1 is 100 percent",
    )
    hit_count_transfer: int = Field(
        3,
        ge=0,
        alias="loadBalancerSheddingConditionHitCountThreshold",
        description="TransferShedder: runs out of balance that must be exceeded before it sheds",
    )
    transfer: bool = Field(
        True,
        alias="loadBalancerTransferEnabled",
        description="TransferShedder: name the destination and allow swaps; else placement chooses",
    )
    max_brokers_per_run: int = Field(
        3,
        ge=0,
        alias="loadBalancerMaxNumberOfBrokerSheddingPerCycle",
        description="TransferShedder: brokers that shed in one run",
    )
    shedding_delay_seconds: float = Field(
        180,
        ge=0,
        alias="loadBalanceSheddingDelayInSeconds",
        description="TransferShedder: seconds that a broker's report must be younger than its last unload",
    )
    load_data_ttl_seconds: float = Field(
        1800,
        ge=0,
        alias="loadBalancerBrokerLoadDataTTLInSeconds",
        description="TransferShedder: age from which a report is not looked at, seconds",
    )
    top_bundles: int = Field(
        10,
        ge=1,
        alias="loadBalancerMaxNumberOfBundlesInBundleLoadReport",
        description="TransferShedder: busiest bundles of a broker that are looked at",
    )
    shed_policy_bundles: bool = Field(
        False,
        alias="loadBalancerSheddingBundlesWithPoliciesEnabled",
        description="TransferShedder: bundles of namespaces under policies may move",
    )
    credit_swaps: bool = Field(
        False,
        alias="loadBalancerDebugModeEnabled",
        description="TransferShedder: count what a swap brings back, as Pulsar does in debug mode alone",
    )
    usage_difference: Percent = Field(
        10,
        alias="loadBalancerAverageResourceUsageDifferenceThresholdPercentage",
        description="LeastResourceUsageWithWeight: points below the average that make a broker a destination",
    )
    max_broker_topics: int = Field(
        50000,
        ge=0,
        alias="loadBalancerBrokerMaxTopics",
        description="topics from which a broker is no destination",
    )
    even_distribution: bool = Field(
        False,
        alias="loadBalancerDistributeBundlesEvenlyEnabled",
        description="placement prefers the brokers with the fewest bundles of the namespace",
    )
    failure_domains: bool = Field(
        False,
        alias="failureDomainsEnabled",
        description="anti-affinity groups are spread over failure domains first",
    )
    prefer_later_versions: bool = Field(
        False,
        alias="preferLaterVersions",
        description="placement takes brokers of the latest version alone",
    )
    excluded_namespaces: Namespaces = Field(
        (),
        alias="loadBalancerSheddingExcludedNamespaces",
        description="namespaces (tenant/namespace) never moved",
    )
    grace_period_minutes: float = Field(
        30,
        ge=0,
        alias="loadBalancerSheddingGracePeriodMinutes",
        description="minutes before a moved bundle may move again",
    )
    report_max_interval_minutes: float = Field(
        15,
        gt=0,
        alias="loadBalancerReportUpdateMaxIntervalMinutes",
        description="minutes between metadata writes, at the latest",
    )
    host_usage_interval_minutes: float = Field(
        1,
        gt=0,
        alias="loadBalancerHostUsageCheckIntervalMinutes",
        description="minutes between a broker's host samples",
    )

    # The rebalancer's own settings.
    strategy: Strategy = Field(Strategy.AVG, description="which shedder chooses bundles, by Pulsar's class name")
    placement: Placement | None = Field(
        None,
        description="who names a destination where the shedder does not, by Pulsar's class name; "
        "empty: AvgShedder for AvgShedder, LeastResourceUsageWithWeight for TransferShedder, "
        "else LeastLongTermMessageRate",
    )
    mode: Mode = Field(Mode.OBSERVE, description="off, observe (decide and explain) or auto (act)")
    interval_seconds: float = Field(60, ge=5, le=86400, description="seconds between two runs")
    connection: str = Field("pulsar_admin_default", min_length=1, description="Airflow connection of type pulsar_admin")
    spark_connection: str = Field("spark_default", min_length=1, description="Airflow connection of type spark")
    pulsar_cluster: str = Field("", description="the cluster's name inside Pulsar; empty: asked of the brokers")
    excluded_brokers: Brokers = Field((), description="brokers (host:port) that neither give nor take bundles")
    max_bundles_per_run: int | None = Field(None, ge=1, description="cap of bundles moved in one run")
    max_bundles_per_broker: int | None = Field(
        None, ge=1, description="cap of bundles moved off or onto one broker in one run"
    )
    max_quarantined_brokers: int = Field(2, ge=0, description="brokers that may be left out before the run is blocked")
    pause: Pause | None = Field(None, description="nothing is moved until its end")
    state_max_gap: float = Field(3, ge=1, description="intervals after which hits are no longer consecutive")
    listen_seconds: float = Field(
        6,
        ge=0,
        le=120,
        description="seconds at most that brokers under the extensible load manager are listened to; 0: not at all, "
        "averages of throughput and top bundles are then computed here",
    )
    max_plan_age_seconds: float = Field(180, gt=0, description="age at which a plan is no longer carried out")
    unload_concurrency: int = Field(4, ge=1, le=64, description="bundles moved at the same time")
    unload_retries: int = Field(2, ge=0, le=10, description="further tries for a bundle that landed elsewhere")
    unload_timeout_seconds: float = Field(
        30, gt=0, description="seconds until an unload must reach a broker, and from then until its bundle has an owner"
    )
    compact_after_days: int = Field(
        1, ge=0, le=3650, description="days after which a day's runs become one table per kind; 0: never"
    )
    retention_days: int = Field(
        14, ge=0, le=3650, description="days that run folders and exports of the state are kept at most; 0: for ever"
    )
    history_days: int = Field(
        90, ge=0, le=3650, description="days that the tables of compacted runs are kept; 0: for ever"
    )
    alert_connection: str = Field("", description="Airflow connection of type apprise; empty: no alerts")
    alert_after_intervals: int = Field(
        5, ge=2, le=1000, description="intervals without the end of a run until that is told"
    )
    alert_quiet_minutes: float = Field(
        5, ge=0, description="minutes that a condition must stay away until it is told to be over"
    )

    @field_validator("mode", mode="before")
    @classmethod
    def _off(cls, value: object) -> object:
        # YAML takes a bare `off` for the truth value.
        return Mode.OFF if value is False else value

    @property
    def names_destinations(self) -> Placement:
        """The placement that names a destination where the shedder does not."""
        if self.placement is not None:
            return self.placement
        return _PLACEMENT_BESIDE.get(self.strategy, Placement.LEAST_RATE)

    @model_validator(mode="after")
    def _pairs_of_fields(self) -> Self:
        if self.strategy is Strategy.AVG and self.placement not in (None, Placement.AVG):
            raise ValueError(f"placement {self.placement} has nothing to place: strategy AvgShedder plans destinations")
        if self.strategy is Strategy.AVG and self.low_threshold > self.high_threshold:
            raise ValueError(f"low_threshold {self.low_threshold:g} is above high_threshold {self.high_threshold:g}")
        for name in ("retention_days", "history_days"):
            if 0 < getattr(self, name) < self.compact_after_days:
                raise ValueError(f"compact_after_days {self.compact_after_days} is above {name} {getattr(self, name)}")
        return self


_PLACEMENT_BESIDE = {Strategy.AVG: Placement.AVG, Strategy.TRANSFER: Placement.LEAST_USAGE}

FIELD_OF_PULSAR_NAME: dict[str, str] = {
    field.alias: name for name, field in Settings.model_fields.items() if field.alias is not None
}
"""Our field name by Pulsar's setting name."""


def validate(values: Mapping[str, Any], *, where: str, origins: Mapping[str, str] | None = None) -> Settings:
    """Settings from names and values.

    Args:
        values: setting names (ours or Pulsar's) and their values.
        where: what the error names as the place, such as `clusters.yaml: east`.
        origins: where the values of our fields came from, if from several places.

    Raises:
        SettingsError: `wrong_setting` or `contradiction`, with the key's name.
    """
    try:
        return Settings.model_validate(dict(values))
    except ValidationError as error:
        raise settings_error(error, where, origins) from None


def settings_error(error: ValidationError, where: str, origins: Mapping[str, str] | None = None) -> SettingsError:
    """What is wrong with settings or parameters, by the names of their keys.

    Args:
        error: of a model of settings.
        where: the place, such as `clusters.yaml: east`.
        origins: as in `validate`.

    Returns:
        `contradiction` when it takes two keys to be wrong, else `wrong_setting`.
    """
    problems = []
    for item in error.errors(include_url=False, include_input=True, include_context=False):
        key = ".".join(_both_names(str(part)) for part in item["loc"])
        field = FIELD_OF_PULSAR_NAME.get(str(item["loc"][0]), item["loc"][0]) if item["loc"] else ""
        origin = f", from: {origins[str(field)]}" if origins and field in origins else ""
        shown = f" (got {str(item['input'])[:80]!r}{origin})" if key else ""
        problems.append(f"{key + ': ' if key else ''}{item['msg'].removeprefix('Value error, ')}{shown}")
    pair = all(not item["loc"] for item in error.errors())
    return SettingsError("contradiction" if pair else "wrong_setting", f"{where}: " + "; ".join(problems))


def _both_names(name: str) -> str:
    field = FIELD_OF_PULSAR_NAME.get(name, name)
    info = Settings.model_fields.get(field)
    return f"{field} ({info.alias})" if info is not None and info.alias else field
