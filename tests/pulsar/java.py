"""Command lines and configuration files that keep a ZooKeeper and several brokers small enough for two cores."""

from collections.abc import Mapping
from pathlib import Path

from tests.pulsar.credentials import Certificates
from tests.pulsar.distribution import Distribution

CLUSTER_NAME = "e2e"

# jdk.internal.platform is what Pulsar reads a control group's CPU limit through.
_OPENED = (
    "java.base/java.io",
    "java.base/java.nio",
    "java.base/java.util.zip",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+PerfDisableSharedMem",
    "-Xss512k",
    "-Djava.net.preferIPv4Stack=true",
    "-Djute.maxbuffer=10485760",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.leakDetection.level=disabled",
    "-Dio.netty.allocator.numDirectArenas=1",
    "-Dio.netty.allocator.numHeapArenas=1",
    "-Dlog4j2.is.webapp=false",
    "-Dlog4j.shutdownHookEnabled=false",
    "-Dbookkeeper.metadata.bookie.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver",
    "-Dbookkeeper.metadata.client.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver",
)
_LOGGING = """\
status=warn
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{HH:mm:ss.SSS} %-5p [%t] %c{1} %m%n
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
"""

# One thread per pool, no bookie, no background work that would move bundles or burn CPU by itself.
_BROKER = {
    "clusterName": CLUSTER_NAME,
    "metadataStoreSessionTimeoutMillis": "30000",
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "brokerShutdownTimeoutMs": "2000",
    "numAcceptorThreads": "1",
    "numIOThreads": "2",
    "numOrderedExecutorThreads": "1",
    "numHttpServerThreads": "6",
    "numExecutorThreadPoolSize": "2",
    "numCacheExecutorThreadPoolSize": "2",
    "numWorkerThreadsForNonPersistentTopic": "1",
    "bookkeeperClientNumWorkerThreads": "1",
    "bookkeeperClientNumIoThreads": "1",
    "managedLedgerNumSchedulerThreads": "1",
    "managedLedgerCacheSizeMB": "8",
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "maxMessagePublishBufferSizeInMB": "16",
    "enablePersistentTopics": "false",
    "allowAutoTopicCreationType": "non-partitioned",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "backlogQuotaCheckEnabled": "false",
    "functionsWorkerEnabled": "false",
    "transactionCoordinatorEnabled": "false",
    "webSocketServiceEnabled": "false",
    "enablePackagesManagement": "false",
    "systemTopicEnabled": "false",
    "topicLevelPoliciesEnabled": "false",
    "exposeBundlesMetricsInPrometheus": "true",
    "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
    "loadBalancerEnabled": "true",
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerDistributeBundlesEvenlyEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "loadBalancerOverrideBrokerNicSpeedGbps": "1",
    "loadBalancerReportUpdateMinIntervalMillis": "1000",
    "loadBalancerReportUpdateMaxIntervalMinutes": "1",
    "loadBalancerReportUpdateThresholdPercentage": "1",
    "loadBalancerHostUsageCheckIntervalMinutes": "1",
}


def java_command(
    distribution: Distribution, logging: Path, memory: tuple[str, ...], main: list[str], archive_to: Path | None = None
) -> list[str]:
    """The distribution's Java with the common flags.

    Loading and verifying ten thousand classes is half of what a broker's start costs: a process that is given
    `archive_to` leaves those it has loaded there when it ends, and others take them from `distribution.archive`.
    """
    opened = [flag for package in _OPENED for flag in ("--add-opens", f"{package}=ALL-UNNAMED")]
    log = f"-Dlog4j.configurationFile={logging}"
    shared = f"-XX:ArchiveClassesAtExit={archive_to}" if archive_to else f"-XX:SharedArchiveFile={distribution.archive}"
    flags = [*_FLAGS, shared] if archive_to or distribution.archive.exists() else [*_FLAGS]
    return [distribution.java, *memory, *flags, log, *opened, "-cp", distribution.class_path, *main]


def write_logging(path: Path) -> None:
    path.write_text(_LOGGING)


def write_zookeeper(path: Path, data: Path, port: int) -> None:
    settings = {
        "tickTime": "2000",
        "dataDir": str(data),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "admin.enableServer": "false",
        "maxClientCnxns": "200",
        "forceSync": "no",
    }
    _write_properties(path, settings)


def write_broker(path: Path, *settings: Mapping[str, str]) -> None:
    """The small broker, with further settings on top: later ones win."""
    merged = dict(_BROKER)
    for further in settings:
        merged.update(further)
    _write_properties(path, merged)


def write_bookie(path: Path, data: Path, port: int, metadata_url: str) -> None:
    settings = {
        "bookiePort": str(port),
        "listeningInterface": "lo",
        "allowLoopback": "true",
        "advertisedAddress": "127.0.0.1",
        "metadataServiceUri": f"metadata-store:{metadata_url}",
        "journalDirectory": str(data / "journal"),
        "ledgerDirectories": str(data / "ledgers"),
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
        "dbStorage_writeCacheMaxSizeMb": "16",
        "dbStorage_readAheadCacheMaxSizeMb": "8",
        "dbStorage_rocksDB_blockCacheSize": "4194304",
        "journalSyncData": "false",
        "journalWriteData": "false",
        "journalPreAllocSizeMB": "4",
        "numAddWorkerThreads": "1",
        "numReadWorkerThreads": "1",
        "numHighPriorityWorkerThreads": "1",
        "serverNumIOThreads": "2",
        "httpServerEnabled": "false",
        "diskUsageThreshold": "0.99",
        "diskUsageWarnThreshold": "0.98",
        "diskUsageLwmThreshold": "0.97",
        "autoRecoveryDaemonEnabled": "false",
        "enableStatistics": "false",
    }
    _write_properties(path, settings)


SHORT_SESSION = {"metadataStoreSessionTimeoutMillis": "8000"}
"""Broker settings for clusters whose brokers are killed; elsewhere a broker that waits for a core keeps its session."""

PERSISTENT = {"enablePersistentTopics": "true"}
"""Broker settings for clusters with a bookie."""

EXTENSIBLE = {"loadManagerClassName": "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"}
"""Broker settings for the extensible load manager, which keeps ownership in a persistent topic."""


def token_settings(key_file: Path, admin_token_file: Path, super_user: str) -> dict[str, str]:
    package = "org.apache.pulsar"
    return {
        "authenticationEnabled": "true",
        "authenticationProviders": f"{package}.broker.authentication.AuthenticationProviderToken",
        "authorizationEnabled": "true",
        "superUserRoles": super_user,
        "tokenSecretKey": f"file://{key_file}",
        "brokerClientAuthenticationPlugin": f"{package}.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"file://{admin_token_file}",
    }


def tls_settings(certificates: Certificates, web_port: int, binary_port: int) -> dict[str, str]:
    """Broker settings for TLS ports; brokers speak TLS to each other too."""
    return {
        "webServicePortTls": str(web_port),
        "brokerServicePortTls": str(binary_port),
        "tlsCertificateFilePath": str(certificates.server_file),
        "tlsKeyFilePath": str(certificates.key_file),
        "tlsTrustCertsFilePath": str(certificates.ca_file),
        "brokerClientTlsEnabled": "true",
        "brokerClientTrustCertsFilePath": str(certificates.ca_file),
    }


def _write_properties(path: Path, settings: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
