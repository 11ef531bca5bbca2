"""A wave in a process of its own, to be killed, with the state in a JSON file."""

import json
import os
from pathlib import Path
from typing import Any

from tests.plugins.pulsar_rebalancer_airflow.operators.unload_scene import unload


class FileState:
    def __init__(self, file: Path) -> None:
        self._file = file

    def get(self, key: str, default: Any = None) -> Any:
        return json.loads(self._file.read_text()).get(key, default)

    def set(self, key: str, value: Any) -> None:
        draft = self._file.with_suffix(".draft")
        draft.write_text(json.dumps(json.loads(self._file.read_text()) | {key: value}))
        draft.replace(self._file)


def main(store: Path, run: str, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    unload(run, FileState(store))
