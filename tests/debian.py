"""Programs that tests need and Python's packages do not bring."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Found = TypeVar("Found")


def installed(package: str, look: Callable[[], Found]) -> Found:
    """What `look` finds, once the package is installed if that is nothing; it can be installed on Debian as root."""
    found, program = look(), shutil.which("apt-get")
    if found or os.getuid() != 0 or program is None:
        return found
    # At run level 1 Debian starts no server of its own on the usual port.
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    install = ["install", "-y", "-qq", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold", package]
    # It fails while another worker runs it.
    with Path(program).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for arguments in () if look() else (["update", "-qq"], install):
            subprocess.run([program, *arguments], env=environment, check=False)
    return look()
