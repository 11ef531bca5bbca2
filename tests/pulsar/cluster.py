"""A real Pulsar cluster on loopback: one ZooKeeper and some brokers; a bookie where the load manager needs one."""

import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
from tests.pulsar import credentials, java
from tests.pulsar.cgroup import CpuGroup
from tests.pulsar.distribution import Distribution
from tests.pulsar.processes import LoggedProcess, ProcessError, free_ports, port_answers

SUPER_USER = "admin"
APPLICATION = "app"
# Generous: a start takes seconds on an idle machine, a minute when other work has the cores.
_START_SECONDS = 240.0


@dataclass(frozen=True)
class _Ports:
    web: int
    binary: int
    web_tls: int
    binary_tls: int


class PulsarCluster:
    """Context manager around the processes of one cluster; it ends only what it started.

    Args:
        distribution: the Pulsar version to run.
        others: brokers of other versions, by number.
        run_dir: empty or absent folder for configuration, data and logs; the logs stay there.
        cgroups: give every broker a control group of its own (needs root).
        auth: JSON web tokens for everybody; `admin_token` is the super-user's.
        tls: TLS ports beside the plain ones; `web_url` and `service_url` are then the TLS ones. A broker's id keeps
            naming the plain web port as long as there is one.
        plain: keep the plain ports when `tls` is on. Without them the id names the TLS web port.
        bookie: a bookie for persistent topics. Without it there are non-persistent ones only.
        extensible: run the extensible load manager; needs the bookie for its system topics.
        own_hosts: a loopback address for each broker: isolation policies look at hosts, not at ports.
        stats_seconds: how often brokers compute the rates of their topics.
        extra: further broker settings, under Pulsar's names.
    """

    def __init__(
        self,
        distribution: Distribution,
        run_dir: Path,
        brokers: int = 3,
        *,
        others: Mapping[int, Distribution] | None = None,
        cgroups: bool = False,
        auth: bool = False,
        tls: bool = False,
        plain: bool = True,
        bookie: bool = False,
        extensible: bool = False,
        own_hosts: bool = False,
        stats_seconds: int = 1,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        if not plain and not tls:
            raise ValueError("plain=False needs tls=True: a broker must listen somewhere")
        if extensible and not bookie:
            raise ValueError("extensible=True needs bookie=True: ownership is kept in a persistent topic")
        self.distribution = distribution
        self._others = dict(others or {})
        self.run_dir = run_dir.resolve()
        self._plain = plain
        self._hosts = [f"127.0.0.{i + 1 if own_hosts else 1}" for i in range(brokers)]
        self._zookeeper_port, self._bookie_port, *ports = free_ports(2 + 4 * brokers)
        self._ports = [_Ports(*ports[4 * i : 4 * i + 4]) for i in range(brokers)]
        self._brokers: dict[int, LoggedProcess] = {}
        self._groups: list[CpuGroup] = []
        self._with_groups = cgroups
        self._quotas: dict[int, int | None] = {}
        self._zookeeper: LoggedProcess | None = None
        self._with_bookie = bookie
        self._bookie: LoggedProcess | None = None
        self._archive_to: Path | None = None
        self._log_settings = self.run_dir / "log4j2.properties"
        run_dir.mkdir(parents=True, exist_ok=True)
        self._common = {
            "metadataStoreUrl": self._metadata_url,
            "configurationMetadataStoreUrl": self._metadata_url,
            "statsUpdateFrequencyInSecs": str(stats_seconds),
            "statsUpdateInitialDelayInSecs": str(stats_seconds),
        }
        self._common |= (java.PERSISTENT if bookie else {}) | (java.EXTENSIBLE if extensible else {})
        self.admin_token: str | None = None
        self.app_token: str | None = None
        if auth:
            self._make_tokens()
        self._certificates = credentials.make_certificates(self.run_dir) if tls else None
        self._extra = dict(extra or {})

    def _make_tokens(self) -> None:
        key, token_file = self.run_dir / "token.key", self.run_dir / "admin.token"
        key.write_bytes(secrets.token_bytes(32))
        self.admin_token = credentials.token(key.read_bytes(), SUPER_USER)
        self.app_token = credentials.token(key.read_bytes(), APPLICATION)
        token_file.write_text(self.admin_token)
        self._common |= java.token_settings(key, token_file, SUPER_USER)

    @property
    def _metadata_url(self) -> str:
        return f"zk:127.0.0.1:{self._zookeeper_port}"

    @property
    def broker_ids(self) -> list[str]:
        """The brokers' ids (``host:port``) in the order of their numbers, whether they run or not."""
        ports = (ports.web if self._plain else ports.web_tls for ports in self._ports)
        return [f"{host}:{port}" for host, port in zip(self._hosts, ports, strict=True)]

    @property
    def ca_file(self) -> Path | None:
        """PEM file of the private authority; None without TLS."""
        return self._certificates.ca_file if self._certificates else None

    @property
    def service_url(self) -> str:
        """Binary service URL that names every broker, so that clients survive the loss of one."""
        scheme = "pulsar+ssl" if self._certificates else "pulsar"
        ports = (ports.binary_tls if self._certificates else ports.binary for ports in self._ports)
        hosts = ",".join(f"{host}:{port}" for host, port in zip(self._hosts, ports, strict=True))
        return f"{scheme}://{hosts}"

    def web_url(self, broker: int) -> str:
        host, ports = self._hosts[broker], self._ports[broker]
        return f"https://{host}:{ports.web_tls}" if self._certificates else f"http://{host}:{ports.web}"

    def pid(self, broker: int) -> int:
        return self._brokers[broker].pid

    def http(self, token: str | None = None) -> httpx.Client:
        """A plain HTTP client that trusts the cluster's authority and sends the token if one is given."""
        verify = ssl.create_default_context(cafile=self.ca_file) if self.ca_file else True
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(verify=verify, headers=headers, timeout=90, trust_env=False)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._archive_to is not None and 0 in self._brokers:
                if self._with_groups:
                    self.set_cpu_quota(0, None)
                self.stop_broker(0)
        finally:
            self.stop()

    def _start(self) -> None:
        java.write_logging(self._log_settings)
        self._start_zookeeper()
        self._initialise_metadata()
        if self._with_bookie:
            self._start_bookie()
        if self._with_groups:
            # The random part keeps runs apart that share the machine.
            run = secrets.token_hex(4)
            for broker in range(len(self._ports)):
                self._groups.append(CpuGroup(f"pulsar-{run}-broker-{broker}"))
        for broker in range(len(self._ports)):
            self._spawn_broker(broker)
        for broker in range(len(self._ports)):
            self._await_ready(broker)
        self._await_all_listed()

    def _java(self, memory: tuple[str, ...], *main: str) -> list[str]:
        return java.java_command(self.distribution, self._log_settings, memory, list(main))

    def _start_zookeeper(self) -> None:
        configuration = self.run_dir / "zookeeper.conf"
        java.write_zookeeper(configuration, self.run_dir / "zookeeper", self._zookeeper_port)
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = self._java(("-Xms32m", "-Xmx96m"), main, str(configuration))
        self._zookeeper = LoggedProcess("zookeeper", command, self.run_dir / "zookeeper.log")
        self._zookeeper.await_that(lambda: port_answers(self._zookeeper_port), "listening on its port", _START_SECONDS)

    def _initialise_metadata(self) -> None:
        arguments = [
            *("--cluster", java.CLUSTER_NAME),
            *("--metadata-store", self._metadata_url),
            *("--configuration-metadata-store", self._metadata_url),
            *("--web-service-url", f"http://127.0.0.1:{self._ports[0].web}"),
            *("--broker-service-url", f"pulsar://127.0.0.1:{self._ports[0].binary}"),
        ]
        command = self._java(("-Xmx128m",), "org.apache.pulsar.PulsarClusterMetadataSetup", *arguments)
        setup = LoggedProcess("metadata set-up", command, self.run_dir / "metadata.log")
        setup.await_end(_START_SECONDS)

    def _start_bookie(self) -> None:
        configuration = self.run_dir / "bookie.conf"
        java.write_bookie(configuration, self.run_dir / "bookie", self._bookie_port, self._metadata_url)
        memory = ("-Xms48m", "-Xmx128m", "-XX:MaxDirectMemorySize=96m")
        command = self._java(memory, "org.apache.bookkeeper.server.Main", "--conf", str(configuration))
        self._bookie = LoggedProcess("bookie", command, self.run_dir / "bookie.log")
        self._bookie.await_that(lambda: port_answers(self._bookie_port), "listening on its port", _START_SECONDS)

    def _broker_settings(self, broker: int) -> dict[str, str]:
        ports = self._ports[broker]
        address = {"bindAddress": self._hosts[broker], "advertisedAddress": self._hosts[broker]}
        settings = {"webServicePort": "", "brokerServicePort": "", **address}
        if self._plain:
            settings |= {"webServicePort": str(ports.web), "brokerServicePort": str(ports.binary)}
        if self._certificates:
            settings |= java.tls_settings(self._certificates, ports.web_tls, ports.binary_tls)
        return settings

    def _spawn_broker(self, broker: int) -> None:
        configuration = self.run_dir / f"broker-{broker}.conf"
        java.write_broker(configuration, self._common, self._broker_settings(broker), self._extra)
        memory = ("-Xms96m", "-Xmx256m", "-XX:MaxDirectMemorySize=128m")
        main = "org.apache.pulsar.PulsarBrokerStarter"
        distribution = self._others.get(broker, self.distribution)
        archive_to = None
        if broker == 0:
            # The first of its version; it is ended in order, and its classes are there for all later ones.
            archive = distribution.archive
            archive_to = None if archive.exists() else archive.with_suffix(f".{secrets.token_hex(4)}")
            self._archive_to = archive_to
        arguments = [main, "--broker-conf", str(configuration)]
        command = java.java_command(distribution, self._log_settings, memory, arguments, archive_to)
        if self._with_groups:
            # A start under the quota of a small broker takes minutes.
            self._groups[broker].set_quota(None)
            command = self._groups[broker].wrap(command)
        log = self.run_dir / f"broker-{broker}.log"
        self._brokers[broker] = LoggedProcess(f"broker {broker}", command, log)

    def _await_ready(self, broker: int) -> None:
        with self.http(self.admin_token) as client:

            def ready() -> bool:
                try:
                    return client.get(f"{self.web_url(broker)}/admin/v2/brokers/ready").status_code == 200
                except httpx.TransportError:
                    return False

            self._brokers[broker].await_that(ready, "ready", _START_SECONDS)
        if self._quotas.get(broker) is not None:
            self._groups[broker].set_quota(self._quotas[broker])

    def _await_all_listed(self) -> None:
        """Every running broker lists all of them: each reads the list from a cache of its own."""
        with self.http(self.admin_token) as client:
            for number, process in self._brokers.items():
                address = f"{self.web_url(number)}/admin/v2/brokers/{java.CLUSTER_NAME}"

                def lists_all(address: str = address) -> bool:
                    try:
                        answer = client.get(address)
                    except httpx.TransportError:
                        return False
                    return answer.status_code == 200 and sorted(answer.json()) == sorted(self.broker_ids)

                process.await_that(lists_all, "listing all brokers", _START_SECONDS)

    def start_broker(self, broker: int, distribution: Distribution | None = None) -> None:
        """Start a broker that was stopped or killed again under its old id; its CPU quota is back once it is ready."""
        if broker in self._brokers:
            raise ProcessError(f"broker {broker} runs already (process {self.pid(broker)})")
        if distribution is not None:
            self._others[broker] = distribution
        self._spawn_broker(broker)
        self._await_ready(broker)

    def kill_broker(self, broker: int) -> None:
        """SIGKILL: the others learn of it only when its metadata session runs out."""
        self._brokers.pop(broker).kill()

    def stop_broker(self, broker: int) -> None:
        """SIGTERM, and wait until it has ended: it unloads its bundles first, as a service manager has it do."""
        self._brokers.pop(broker).terminate(_START_SECONDS)
        if broker == 0 and self._archive_to is not None and self._archive_to.exists():
            self._archive_to.rename(self._archive_to.with_suffix(".jsa"))

    def set_cpu_quota(self, broker: int, quota_us: int | None) -> None:
        """Limit a running broker's CPU, in microseconds per 100,000; None lifts the limit."""
        if not self._with_groups:
            raise ValueError("CPU quotas need PulsarCluster(..., cgroups=True)")
        self._groups[broker].set_quota(quota_us)
        self._quotas[broker] = quota_us

    def cpu_seconds(self, broker: int) -> float:
        """CPU seconds that a broker of a cluster with control groups has used since its first start."""
        return self._groups[broker].cpu_seconds()

    def stop(self) -> None:
        """End every process this cluster started and remove its control groups. Twice is harmless."""
        while self._brokers:
            self._brokers.popitem()[1].kill()
        if self._bookie is not None:
            self._bookie.kill()
            self._bookie = None
        if self._zookeeper is not None:
            self._zookeeper.kill()
            self._zookeeper = None
        while self._groups:
            self._groups.pop().remove()
