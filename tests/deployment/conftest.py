import shutil
import subprocess
from pathlib import Path

import pytest
from tests.deployment import compose


@pytest.fixture(scope="session")
def env_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("env")
    shutil.copy(compose.ENV_EXAMPLE, folder)
    subprocess.run([compose.SOURCE / "deploy" / "make_env.sh", folder], check=True)
    return folder / ".env"
