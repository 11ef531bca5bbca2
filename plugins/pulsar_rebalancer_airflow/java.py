"""Find the Java installation that Spark uses, for setup and for the class-data archive."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.reasons import Reason

_MIN_JAVA = 17


def java_command() -> str:
    """Return the `java` command that Spark starts (bin/spark-class): from JAVA_HOME if set, else from PATH."""
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def java_version() -> str:
    """Return `java -version`. Raises `wrong_setting` if Java cannot be started or is too old for Spark."""
    try:
        answer = subprocess.run([java_command(), "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        answer = ""
    release = re.search(r'version "(\d+)', answer)
    if release is not None and int(release[1]) >= _MIN_JAVA:
        return answer
    if home := os.environ.get("JAVA_HOME"):
        place = f"JAVA_HOME={home}"
        advice = f"set JAVA_HOME to Java {_MIN_JAVA} or newer, or unset JAVA_HOME so that Spark uses PATH"
    else:
        place = "PATH"
        advice = "install a JRE (Debian: openjdk-17-jre-headless), or set JAVA_HOME"
    raise SettingsError(Reason.WRONG_SETTING, f"Spark needs Java {_MIN_JAVA} or newer, but {place} has none: {advice}")


if __name__ == "__main__":
    try:
        java_version()
    except SettingsError as error:
        sys.exit(error.message)
