"""Pulsar's own load-balancer settings, with Pulsar's meanings, defaults and names."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from pulsar_rebalancer.config.field_types import SplitAlgorithm
from pulsar_rebalancer.names import Namespaces

Percent = Annotated[float, Field(ge=0, le=1000)]
Weight = Annotated[float, Field(ge=0, le=100)]

_MAX_VALUE = 1e12
"""Maximum value of a numeric setting. It is low enough that sums and times do not overflow."""

MIB = 1048576
"""Number of bytes in what Pulsar's settings call a megabyte."""


class PulsarSettings(BaseModel):
    """Settings that can come from the live brokers, with our names and Pulsar's, and Pulsar 5.0's defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)

    low_threshold: Percent = Field(
        15, alias="loadBalancerAvgShedderLowThreshold", description="score gap (points) at which a pair gets a low hit"
    )
    high_threshold: Percent = Field(
        40,
        alias="loadBalancerAvgShedderHighThreshold",
        description="score gap (points) at which a pair also gets a high hit",
    )
    hit_count_low: int = Field(
        8,
        ge=1,
        alias="loadBalancerAvgShedderHitCountLowThreshold",
        description="consecutive low-threshold hits at which a pair fires",
    )
    hit_count_high: int = Field(
        2,
        ge=1,
        alias="loadBalancerAvgShedderHitCountHighThreshold",
        description="consecutive high-threshold hits at which a pair fires",
    )
    min_unload_message: float = Field(
        1000, ge=0, alias="minUnloadMessage", description="smallest message rate worth moving, msg/s"
    )
    min_unload_throughput: float = Field(
        1048576, ge=0, alias="minUnloadMessageThroughput", description="smallest throughput worth moving, bytes/s"
    )
    max_unload_percentage: float = Field(
        0.5, gt=0, le=1, alias="maxUnloadPercentage", description="share of a pair's load difference to move, 0 to 1"
    )
    cpu_weight: Weight = Field(1.0, alias="loadBalancerCPUResourceWeight", description="weight of CPU in the score")
    direct_memory_weight: Weight = Field(
        0.0, alias="loadBalancerDirectMemoryResourceWeight", description="weight of direct memory in the score"
    )
    bandwidth_in_weight: Weight = Field(
        1.0, alias="loadBalancerBandwidthInResourceWeight", description="weight of inbound bandwidth in the score"
    )
    bandwidth_out_weight: Weight = Field(
        1.0, alias="loadBalancerBandwidthOutResourceWeight", description="weight of outbound bandwidth in the score"
    )
    memory_weight: Weight = Field(
        0.0,
        alias="loadBalancerMemoryResourceWeight",
        description="weight of the JVM heap in the score; extensible load manager only",
    )
    history_percentage: float = Field(
        0.9,
        ge=0,
        le=1,
        alias="loadBalancerHistoryResourcePercentage",
        description="weight of earlier values in a broker's moving average, 0 to 1",
    )
    average_threshold: Percent = Field(
        10,
        alias="loadBalancerBrokerThresholdShedderPercentage",
        description="ThresholdShedder: a broker sheds if its load is this many points above the mean",
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
        description="ThresholdShedder: the busiest broker also sheds if another broker's load is average_threshold "
        "points below the mean",
    )
    overloaded_threshold: Percent = Field(
        85,
        alias="loadBalancerBrokerOverloadedThresholdPercentage",
        description="score at which a broker is overloaded, percent",
    )
    rate_difference: float = Field(
        50,
        alias="loadBalancerMsgRateDifferenceShedderThreshold",
        description="UniformLoadShedder: sheds if one broker's message rate exceeds another's by more "
        "than this percentage; 0: ignored",
    )
    throughput_ratio: float = Field(
        4,
        alias="loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold",
        description="UniformLoadShedder: sheds if one broker's throughput exceeds another's by more "
        "than this factor; 0: ignored",
    )
    max_unload_bundles: int = Field(
        -1,
        ge=-1,
        alias="maxUnloadBundleNumPerShedding",
        description="UniformLoadShedder: maximum bundles shed in one run; -1: no cap",
    )
    target_std: float = Field(
        0.25,
        ge=0,
        alias="loadBalancerBrokerLoadTargetStd",
        description="TransferShedder: target standard deviation of the brokers' loads (1 is 100 percent)",
    )
    hit_count_transfer: int = Field(
        3,
        ge=0,
        alias="loadBalancerSheddingConditionHitCountThreshold",
        description="TransferShedder: sheds after more than this many consecutive unbalanced runs",
    )
    transfer: bool = Field(
        True,
        alias="loadBalancerTransferEnabled",
        description="TransferShedder: chooses destinations and may swap bundles; if false, placement chooses "
        "destinations",
    )
    max_brokers_per_run: int = Field(
        3,
        ge=0,
        alias="loadBalancerMaxNumberOfBrokerSheddingPerCycle",
        description="TransferShedder: maximum brokers that shed in one run",
    )
    shedding_delay_seconds: float = Field(
        180,
        ge=0,
        alias="loadBalanceSheddingDelayInSeconds",
        description="TransferShedder: seconds after a broker's last unload during which nothing is shed",
    )
    load_data_ttl_seconds: float = Field(
        1800,
        ge=0,
        alias="loadBalancerBrokerLoadDataTTLInSeconds",
        description="TransferShedder: age in seconds above which a broker's report is ignored",
    )
    top_bundles: int = Field(
        10,
        ge=1,
        alias="loadBalancerMaxNumberOfBundlesInBundleLoadReport",
        description="TransferShedder: considers this many of a broker's busiest bundles",
    )
    shed_policy_bundles: bool = Field(
        False,
        alias="loadBalancerSheddingBundlesWithPoliciesEnabled",
        description="TransferShedder: bundles of namespaces with isolation policies may move",
    )
    credit_swaps: bool = Field(
        False,
        alias="loadBalancerDebugModeEnabled",
        description="TransferShedder: counts traffic that a swap moves back to the source (Pulsar: only in debug mode)",
    )
    usage_difference: Percent = Field(
        10,
        alias="loadBalancerAverageResourceUsageDifferenceThresholdPercentage",
        description="LeastResourceUsageWithWeight: destinations are at least this many points below the mean load",
    )
    max_broker_topics: int = Field(
        50000,
        ge=0,
        alias="loadBalancerBrokerMaxTopics",
        description="a broker with more topics than this is no destination",
    )
    even_distribution: bool = Field(
        False,
        alias="loadBalancerDistributeBundlesEvenlyEnabled",
        description="placement prefers brokers with the fewest bundles of the same namespace",
    )
    failure_domains: bool = Field(
        False, alias="failureDomainsEnabled", description="spread anti-affinity groups by failure domain, then broker"
    )
    prefer_later_versions: bool = Field(
        False, alias="preferLaterVersions", description="placement chooses only brokers of the latest version"
    )
    excluded_namespaces: Namespaces = Field(
        (), alias="loadBalancerSheddingExcludedNamespaces", description="namespaces (tenant/namespace) that never move"
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
        description="maximum minutes between a broker's load reports in the metadata store",
    )
    host_usage_interval_minutes: float = Field(
        1,
        gt=0,
        alias="loadBalancerHostUsageCheckIntervalMinutes",
        description="minutes between a broker's measurements of its host's usage",
    )

    auto_split: bool = Field(
        True,
        alias="loadBalancerAutoBundleSplitEnabled",
        description="if true, brokers split bundles themselves, and the rebalancer splits none",
    )
    unload_split_bundles: bool = Field(
        True,
        alias="loadBalancerAutoUnloadSplitBundlesEnabled",
        description="unload the parts of a split bundle, unless a policy applies to the namespace",
    )
    split_algorithm: SplitAlgorithm = Field(
        SplitAlgorithm.RANGE,
        alias="defaultNamespaceBundleSplitAlgorithm",
        description="algorithm (Pulsar's name) that chooses the split position",
    )
    max_bundle_topics: int = Field(
        1000, alias="loadBalancerNamespaceBundleMaxTopics", description="number of topics above which a bundle is split"
    )
    max_bundle_sessions: int = Field(
        1000,
        alias="loadBalancerNamespaceBundleMaxSessions",
        description="number of producers and consumers above which a bundle is split; 0: ignored",
    )
    max_bundle_msg_rate: int = Field(
        30000,
        alias="loadBalancerNamespaceBundleMaxMsgRate",
        description="inbound plus outbound message rate above which a bundle is split, msg/s",
    )
    max_bundle_bandwidth: int = Field(
        100,
        alias="loadBalancerNamespaceBundleMaxBandwidthMbytes",
        description="inbound plus outbound throughput above which a bundle is split, MiB/s",
    )
    max_namespace_bundles: int = Field(
        128,
        alias="loadBalancerNamespaceMaximumBundles",
        description="a namespace with this many bundles is split no further",
    )
    flow_difference: float = Field(
        10,
        alias="flowOrQpsDifferenceThresholdPercentage",
        description="flow_or_qps_equally_divide: splits bundles that exceed max_bundle_msg_rate or "
        "max_bundle_bandwidth by this many percent",
    )
    hit_count_split: int = Field(
        3,
        alias="loadBalancerNamespaceBundleSplitConditionHitCountThreshold",
        description="a bundle is split after more than this many consecutive samples over a limit; "
        "extensible load manager only",
    )
    max_splits_per_broker: int = Field(
        10,
        alias="loadBalancerMaxNumberOfBundlesToSplitPerCycle",
        description="maximum number of a broker's bundles to split in one run; extensible load manager only",
    )

    @field_validator("*")
    @classmethod
    def _check_bound(cls, value: object) -> object:
        if isinstance(value, int | float) and abs(value) > _MAX_VALUE:
            raise ValueError(f"the number must be between -{_MAX_VALUE:g} and {_MAX_VALUE:g}")
        return value


FIELD_OF_PULSAR_NAME: dict[str, str] = {
    field.alias: name for name, field in PulsarSettings.model_fields.items() if field.alias is not None
}
