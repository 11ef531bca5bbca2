"""Files that others may read, and secrets in places where they must not be."""

import base64
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq


def open_to_others(top: Path) -> list[str]:
    found = (path for path in (top, *top.rglob("*")) if not path.is_symlink())
    return [f"{path} {stat.S_IMODE(path.stat().st_mode):o}" for path in found if path.stat().st_mode & 0o077]


def forms(secret: str) -> set[str]:
    """A secret as it is, in a URL, and in base64."""
    raw = secret.encode()
    coded = {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()}
    return {secret, quote(secret), quote(secret, safe="")} | {text.rstrip("=") for text in coded}


def texts_below(top: Path) -> Iterator[tuple[str, str]]:
    """Every file as text; tables are read, because their columns are compressed."""
    for path in sorted(top.rglob("*")):
        if path.is_file():
            yield str(path), path.read_bytes().decode(errors="replace")
            if path.suffix == ".parquet":
                yield str(path), str(pq.read_table(path).to_pylist())


def leaks(secrets: Mapping[str, str], texts: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Which secret is in which place."""
    wanted = [(name, form) for name, secret in secrets.items() for form in forms(secret)]
    return {(name, place) for place, text in texts for name, form in wanted if form in text}
