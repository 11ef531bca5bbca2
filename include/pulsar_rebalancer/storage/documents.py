"""JSON documents with a version number. A document with another version is rejected with a reason code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from pulsar_rebalancer.storage.path import StoragePath

_Model = TypeVar("_Model", bound=BaseModel)

VERSION = 1
"""Version of all these documents. Any change other than adding a field with a default requires a higher version."""


class VersionedDocument(BaseModel):
    """A JSON document with a fixed path in a folder, such as a run's folder.

    Attributes:
        FILE: the document's path relative to the folder.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    FILE: ClassVar[str]

    version: int = VERSION

    def write(self, folder: StoragePath) -> None:
        """Write the document to its file in a folder."""
        (folder / self.FILE).write_json(self.model_dump(mode="json"))

    @classmethod
    def read(cls, folder: StoragePath) -> Self:
        """Read the document from its file in a folder.

        Raises:
            SnapshotError: `file_missing`, `file_damaged`, or `file_version` if another release wrote it.
        """
        file = folder / cls.FILE
        return cls.parse(file.read_json(), file.uri)

    @classmethod
    def parse(cls, document: Any, where: str) -> Self:
        """Create the document from parsed JSON.

        Raises:
            SnapshotError: `file_damaged`, or `file_version` if another release wrote it.
        """
        version = document.get("version") if isinstance(document, Mapping) else None
        if version != VERSION:
            raise SnapshotError(Reason.FILE_VERSION, f"{where} has version {version!r}, this release reads {VERSION}")
        return load(cls, document, where)

    @classmethod
    def known(cls, folder: StoragePath) -> Self | None:
        """Read the document; return None if it is missing or cannot be read."""
        try:
            return cls.read(folder)
        except SnapshotError:
            return None

    @classmethod
    def find(cls, folder: StoragePath) -> Self | None:
        """Read the document; return None if it is missing.

        Raises:
            SnapshotError: `file_damaged` or `file_version`.
        """
        return cls.read(folder) if (folder / cls.FILE).exists() else None


def load(model: type[_Model], document: Any, where: str) -> _Model:
    """Validate a document, or part of one, and return it. The version is not checked.

    Raises:
        SnapshotError: `file_version` if the document has a field that this release does not have, else `file_damaged`.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise SnapshotError(Reason.FILE_VERSION, f"{where}: this release does not know {field}") from None
        raise SnapshotError(Reason.FILE_DAMAGED, f"{where} cannot be read: {field}: {first['msg']}") from None
