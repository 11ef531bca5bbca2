"""The brokers' configuration, as in the admin REST API: all values are strings, and some keys are dynamic."""

from __future__ import annotations

import re

from pulsar_simulator.brokers import Broker
from pulsar_simulator.faults import Refusal

DEFAULTS = {
    "defaultNamespaceBundleSplitAlgorithm": "range_equally_divide",
    "defaultNumberOfNamespaceBundles": "4",
    "flowOrQpsDifferenceThresholdPercentage": "10",
    "loadBalanceSheddingDelayInSeconds": "180",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "loadBalancerAutoUnloadSplitBundlesEnabled": "true",
    "loadBalancerAverageResourceUsageDifferenceThresholdPercentage": "10",
    "loadBalancerAvgShedderHighThreshold": "40",
    "loadBalancerAvgShedderHitCountHighThreshold": "2",
    "loadBalancerAvgShedderHitCountLowThreshold": "8",
    "loadBalancerAvgShedderLowThreshold": "15",
    "loadBalancerBandwidthInResourceWeight": "1.0",
    "loadBalancerBandwidthOutResourceWeight": "1.0",
    "loadBalancerBandwithInResourceWeight": "1.0",
    "loadBalancerBandwithOutResourceWeight": "1.0",
    "loadBalancerBrokerComfortLoadLevelPercentage": "65",
    "loadBalancerBrokerLoadDataTTLInSeconds": "1800",
    "loadBalancerBrokerLoadTargetStd": "0.25",
    "loadBalancerBrokerMaxTopics": "50000",
    "loadBalancerBrokerOverloadedThresholdPercentage": "85",
    "loadBalancerBrokerThresholdShedderPercentage": "10",
    "loadBalancerBrokerUnderloadedThresholdPercentage": "50",
    "loadBalancerBundleUnloadMinThroughputThreshold": "10.0",
    "loadBalancerCPUResourceWeight": "1.0",
    "loadBalancerDebugModeEnabled": "false",
    "loadBalancerDirectMemoryResourceWeight": "0.0",
    "loadBalancerDistributeBundlesEvenlyEnabled": "false",
    "loadBalancerEnabled": "true",
    "loadBalancerHistoryResourcePercentage": "0.9",
    "loadBalancerHostUsageCheckIntervalMinutes": "1",
    "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis": "30000",
    "loadBalancerLoadPlacementStrategy": "org.apache.pulsar.broker.loadbalance.impl.AvgShedder",
    "loadBalancerLoadSheddingStrategy": "org.apache.pulsar.broker.loadbalance.impl.AvgShedder",
    "loadBalancerMaxNumberOfBrokerSheddingPerCycle": "3",
    "loadBalancerMaxNumberOfBundlesInBundleLoadReport": "10",
    "loadBalancerMaxNumberOfBundlesToSplitPerCycle": "10",
    "loadBalancerMemoryResourceWeight": "0.0",
    "loadBalancerMsgRateDifferenceShedderThreshold": "50.0",
    "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold": "4.0",
    "loadBalancerMultiPhaseBundleUnload": "true",
    "loadBalancerNamespaceBundleMaxBandwidthMbytes": "100",
    "loadBalancerNamespaceBundleMaxMsgRate": "30000",
    "loadBalancerNamespaceBundleMaxSessions": "1000",
    "loadBalancerNamespaceBundleMaxTopics": "1000",
    "loadBalancerNamespaceBundleSplitConditionHitCountThreshold": "3",
    "loadBalancerNamespaceMaximumBundles": "128",
    "loadBalancerOverrideBrokerNicSpeedGbps": "Optional[1.0]",
    "loadBalancerOverrideBrokerNics": "[]",
    "loadBalancerPlacementStrategy": "leastLoadedServer",
    "loadBalancerReportUpdateMaxIntervalMinutes": "15",
    "loadBalancerReportUpdateMinIntervalMillis": "5000",
    "loadBalancerReportUpdateThresholdPercentage": "10",
    "loadBalancerResourceQuotaUpdateIntervalMinutes": "15",
    "loadBalancerServiceUnitStateMaxConcurrentOverrides": "64",
    "loadBalancerServiceUnitStateMonitorIntervalInSeconds": "60",
    "loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds": "3600",
    "loadBalancerServiceUnitTableViewSyncer": "None",
    "loadBalancerSheddingBundlesWithPoliciesEnabled": "false",
    "loadBalancerSheddingConditionHitCountThreshold": "3",
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerSheddingExcludedNamespaces": "[]",
    "loadBalancerSheddingGracePeriodMinutes": "30",
    "loadBalancerSheddingIntervalMinutes": "1",
    "loadBalancerSplitIntervalMinutes": "1",
    "loadBalancerTransferEnabled": "true",
    "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
    "loadManagerServiceUnitStateTableViewClassName": (
        "org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitStateTableViewImpl"
    ),
    "lowerBoundarySheddingEnabled": "false",
    "maxUnloadBundleNumPerShedding": "-1",
    "maxUnloadPercentage": "0.5",
    "minUnloadMessage": "1000",
    "minUnloadMessageThroughput": "1048576",
    "namespaceBundleUnloadingTimeoutMs": "60000",
    "preferLaterVersions": "false",
    "supportedNamespaceBundleSplitAlgorithms": (
        "[range_equally_divide, topic_count_equally_divide, specified_positions_divide, flow_or_qps_equally_divide]"
    ),
    "topicBundleAssignmentStrategy": "org.apache.pulsar.common.naming.ConsistentHashingTopicBundleAssigner",
}
"""Load-balancing settings, with AvgShedder configured and Pulsar's own shedding disabled."""

STATIC_KEYS = frozenset(
    {
        "loadBalancerEnabled",
        "loadBalancerLoadPlacementStrategy",
        "loadBalancerMultiPhaseBundleUnload",
        "loadBalancerOverrideBrokerNicSpeedGbps",
        "loadBalancerOverrideBrokerNics",
        "loadBalancerResourceQuotaUpdateIntervalMinutes",
        "loadBalancerSplitIntervalMinutes",
        "lowerBoundarySheddingEnabled",
        "defaultNumberOfNamespaceBundles",
        "namespaceBundleUnloadingTimeoutMs",
        "topicBundleAssignmentStrategy",
    }
)
"""Keys in `DEFAULTS` that are not dynamic: changing them requires a restart."""

_TYPE_PATTERNS = (re.compile(r"true|false"), re.compile(r"-?\d+"), re.compile(r"-?\d+\.\d+"))
_ACCEPTED_PATTERNS = (re.compile(r"true|false"), re.compile(r"-?\d+"), re.compile(r"-?\d+(\.\d*)?([eE][+-]?\d+)?"))


class Configuration:
    """Configuration of the whole cluster, with dynamic overrides.

    Args:
        cluster: cluster name.
        stats_period: value of `statsUpdateFrequencyInSecs`, in seconds.
        changes: values that differ from `DEFAULTS`; new keys are static.
    """

    def __init__(self, cluster: str, stats_period: float, changes: dict[str, str] | None = None) -> None:
        self._file = {
            **DEFAULTS,
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "clusterName": cluster,
            "exposePublisherStats": "true",
            "statsUpdateFrequencyInSecs": str(max(1, round(stats_period))),
            **(changes or {}),
        }
        self._overrides: dict[str, str] = {}

    def dynamic_names(self) -> list[str]:
        """Return the dynamic keys, which can be changed while brokers are running."""
        return sorted(set(DEFAULTS) - STATIC_KEYS)

    def overrides(self) -> dict[str, str]:
        """Return the overrides as set, including values of the wrong type."""
        return dict(self._overrides)

    def runtime_values(self, broker: Broker, *, tls: bool) -> dict[str, str]:
        """Return a broker's effective configuration. Overrides of the wrong type are ignored."""
        host, _, port = broker.broker_id.rpartition(":")
        effective = {key: self.effective_value(key) for key in self._overrides}
        return {
            **self._file,
            **effective,
            "advertisedAddress": host,
            "webServicePort": "Optional.empty" if tls else f"Optional[{port}]",
            "webServicePortTls": f"Optional[{port}]" if tls else "Optional.empty",
        }

    def effective_value(self, name: str) -> str:
        """Return a key's effective value. An override of the wrong type is ignored."""
        override = self._overrides.get(name)
        return override if override is not None and self._has_right_type(name, override) else self._file[name]

    def set(self, name: str, value: str) -> None:
        """Override a dynamic key on all brokers. The value is not checked.

        Raises:
            Refusal: 412 if the key is unknown or not dynamic.
        """
        self._require_dynamic_key(name)
        self._overrides[name] = value

    def reset(self, name: str) -> None:
        """Remove an override; the value from the configuration file then applies again.

        Raises:
            Refusal: 412 if the key is unknown or not dynamic.
        """
        self._require_dynamic_key(name)
        self._overrides.pop(name, None)

    def _require_dynamic_key(self, name: str) -> None:
        if name not in DEFAULTS or name in STATIC_KEYS:
            raise Refusal(412, "Can't update non-dynamic configuration")

    def _has_right_type(self, name: str, value: str) -> bool:
        for shape, accepted in zip(_TYPE_PATTERNS, _ACCEPTED_PATTERNS, strict=True):
            if shape.fullmatch(self._file[name]):
                return accepted.fullmatch(value) is not None
        return True
