"""Programs that tests need and Python's packages do not bring."""

from __future__ import annotations

import os
import shutil
import subprocess


def install(package: str) -> None:
    """Install a package where that can be done: on Debian as root."""
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        return
    # At run level 1 Debian starts no server of its own on the usual port.
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", package]):
        subprocess.run(["apt-get", *arguments], env=environment, check=False)
