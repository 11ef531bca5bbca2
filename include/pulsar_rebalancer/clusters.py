"""The one YAML file of clusters: a broken entry is told apart from the others, which live."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel, ConfigDict

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.settings import CLUSTER_NAME, FIELD_OF_PULSAR_NAME, Settings, validate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class ClusterEntry(BaseModel):
    """One cluster of the file.

    Attributes:
        name: the cluster's name here; folders and DAG ids carry it.
        given: what the file says, `defaults` merged in, by our field names.
        settings: the same with Pulsar's defaults filled in; the live brokers are asked later.
        error: why the entry cannot be used; then `settings` are the defaults.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    given: dict[str, Any]
    settings: Settings
    error: str = ""


def load_clusters(path: Path) -> list[ClusterEntry]:
    """The clusters of a file, in its order.

    The file has a mapping `clusters` of names to settings and, optionally, `defaults` for all of them.

    Raises:
        SettingsError: `wrong_setting` when the file as a whole cannot be read; a single broken entry does not raise.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = yaml.safe_load(text) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError("wrong_setting", f"{path.name}: cannot be read: {str(error).splitlines()[0]}") from None
    if not isinstance(document, dict) or set(document) - {"defaults", "clusters"}:
        raise SettingsError("wrong_setting", f"{path.name}: expected the keys `defaults` and `clusters` alone")
    defaults, clusters = document.get("defaults") or {}, document.get("clusters") or {}
    if not isinstance(defaults, dict) or not isinstance(clusters, dict):
        raise SettingsError("wrong_setting", f"{path.name}: `defaults` and `clusters` must be mappings")
    twice = _named_twice(text)
    return [_entry(str(name), defaults, given, path.name, twice=name in twice) for name, given in clusters.items()]


def _named_twice(text: str) -> set[str]:
    """Clusters of one name, of which YAML keeps the last without a word."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    parts = root.value if isinstance(root, yaml.MappingNode) else []
    named = [part for key, part in parts if key.value == "clusters" and isinstance(part, yaml.MappingNode)]
    names = Counter(key.value for part in named for key, _ in part.value)
    return {name for name, count in names.items() if count > 1}


def _entry(name: str, defaults: Mapping[str, Any], given: object, file: str, *, twice: bool) -> ClusterEntry:
    safe = name if CLUSTER_NAME.fullmatch(name) else "".join(c if c.isalnum() else "_" for c in name)[:60] or "unnamed"
    try:
        if safe != name:
            raise SettingsError("wrong_setting", f"{file}: {name!r} is no cluster name: letters, digits, . _ - only")
        if twice:
            raise SettingsError("contradiction", f"{file}: two clusters are named {name}: give each a name of its own")
        if given is not None and not isinstance(given, dict):
            raise SettingsError("wrong_setting", f"{file}: {name}: expected a mapping of settings")
        merged = _by_field(defaults) | _by_field(given or {})
        return ClusterEntry(name=name, given=merged, settings=validate(merged, where=f"{file}: {name}"))
    except SettingsError as error:
        return ClusterEntry(name=safe, given={}, settings=Settings(), error=str(error))


def _by_field(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {FIELD_OF_PULSAR_NAME.get(str(key), str(key)): value for key, value in values.items()}
