"""Folders of jars that a real ZooKeeper and real Pulsar brokers run from, obtained with the Maven client."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tarfile
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CACHE_VARIABLE = "PULSAR_REBALANCER_CACHE"

# The import of Pulsar's parent keeps the logging jars at one version: without it two generations meet and no
# process starts.
_DEPENDENCIES_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>pulsar-rebalancer.tests</groupId>
  <artifactId>brokers</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencyManagement><dependencies><dependency>
    <groupId>org.apache.pulsar</groupId><artifactId>pulsar</artifactId>
    <version>{version}</version><type>pom</type><scope>import</scope>
  </dependency></dependencies></dependencyManagement>
  <dependencies><dependency>
    <groupId>org.apache.pulsar</groupId><artifactId>pulsar-broker</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>
"""

_NEEDED = {
    "mvn": "install Apache Maven 3.8 or newer (Debian: apt-get install maven)",
    "java": "install a Java 17 runtime (Debian: apt-get install openjdk-17-jre-headless)",
}


class DistributionError(RuntimeError):
    """The jars of a Pulsar version cannot be had; the message says what to do."""


@dataclass(frozen=True)
class Distribution:
    """One Pulsar version on disk.

    Attributes:
        version: Pulsar's version, as its brokers report it.
        lib: folder that holds every jar of the class path.
    """

    version: str
    lib: Path

    @property
    def class_path(self) -> str:
        """Class path for ``java -cp``."""
        return f"{self.lib}/*"


def cache_root() -> Path:
    """Folder the jars are kept in between runs: ``$PULSAR_REBALANCER_CACHE``, else below ``~/.cache``."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named).expanduser() if named else Path.home() / ".cache" / "pulsar-rebalancer"


def require_command(name: str) -> str:
    """Path of ``mvn`` or ``java``.

    Raises:
        DistributionError: when it is not on PATH, with how to install it.
    """
    found = shutil.which(name)
    if found is None:
        raise DistributionError(f"'{name}' is not on PATH, real brokers cannot be run: {_NEEDED[name]}")
    return found


def from_dependencies(version: str, cache: Path | None = None) -> Distribution:
    """The runtime dependencies of ``pulsar-broker``: for versions without a server distribution in the registry.

    ZooKeeper, the metadata set-up and the brokers all run from this one folder.

    Raises:
        DistributionError: when Maven or Java is missing, or Maven fails.
    """

    def fill(folder: Path) -> None:
        pom = folder / "pom.xml"
        pom.write_text(_DEPENDENCIES_POM.format(version=version))
        arguments = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder / 'lib'}"]
        _maven(["-f", str(pom), *arguments])

    return _once(version, cache, fill)


def from_server_distribution(version: str, cache: Path | None = None) -> Distribution:
    """Apache Pulsar's own server distribution (tar.gz), unpacked.

    Raises:
        DistributionError: when Maven or Java is missing, or Maven fails.
    """

    def fill(folder: Path) -> None:
        artifact = f"org.apache.pulsar:pulsar-server-distribution:{version}:tar.gz:bin"
        _maven(["dependency:get", f"-Dartifact={artifact}", "-Dtransitive=false"], folder)
        _maven(["dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"], folder)
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        archive.unlink()
        (home,) = folder.glob("apache-pulsar-*")
        (home / "lib").rename(folder / "lib")
        shutil.rmtree(home)

    return _once(version, cache, fill)


def _once(version: str, cache: Path | None, fill: Callable[[Path], None]) -> Distribution:
    """Fill the version's folder unless it is there: a folder under its final name is always complete."""
    require_command("java")
    root = cache if cache is not None else cache_root()
    final = root / f"pulsar-{version}"
    root.mkdir(parents=True, exist_ok=True)
    with _lock(root / f".pulsar-{version}.lock"):
        if not final.is_dir():
            with tempfile.TemporaryDirectory(dir=root, prefix=f".pulsar-{version}-") as temporary:
                folder = Path(temporary) / "complete"
                folder.mkdir()
                fill(folder)
                _check(folder / "lib", version)
                folder.rename(final)
    return Distribution(version, final / "lib")


def _check(lib: Path, version: str) -> None:
    if not list(lib.glob(f"*pulsar-broker-{version}.jar")):
        raise DistributionError(f"Maven ended well but left no pulsar-broker-{version}.jar in {lib}")


def _maven(arguments: list[str], folder: Path | None = None) -> None:
    command = [require_command("mvn"), "--batch-mode", "--no-transfer-progress", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-20:])
        raise DistributionError(
            f"Maven could not fetch Pulsar (is its registry reachable? see the mirrors in ~/.m2/settings.xml):\n{tail}"
        )


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held by one process at a time, so that two test runs never fetch the same version twice."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
