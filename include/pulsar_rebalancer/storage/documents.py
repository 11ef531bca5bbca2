"""The JSON documents of a run: read when this release knows their version, else refused with a reason code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from pulsar_rebalancer.storage.path import StoragePath

_Model = TypeVar("_Model", bound=BaseModel)

VERSION = 1
"""Of every document that carries a version: one that gains a field with a default keeps it, any other change counts."""


def read(model: type[_Model], file: StoragePath) -> _Model:
    """Return a document with a version.

    Raises:
        SnapshotError: `file_missing`, `file_damaged`, or `file_version` when another release wrote it.
    """
    return parse(model, file.read_json(), file.uri)


def parse(model: type[_Model], document: Any, where: str) -> _Model:
    """Return a document with a version, as it was read from `where`.

    Raises:
        SnapshotError: `file_version` or `file_damaged`.
    """
    version = document.get("version") if isinstance(document, Mapping) else None
    if version != VERSION:
        raise SnapshotError(Reason.FILE_VERSION, f"{where} has version {version!r}, this release reads {VERSION}")
    return load(model, document, where)


def load(model: type[_Model], document: Any, where: str) -> _Model:
    """Return a document or a part of one that carries no version.

    Raises:
        SnapshotError: `file_version` when it has a field that this release does not know, else `file_damaged`.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise SnapshotError(Reason.FILE_VERSION, f"{where}: this release does not know {field}") from None
        raise SnapshotError(Reason.FILE_DAMAGED, f"{where} cannot be read: {field}: {first['msg']}") from None
