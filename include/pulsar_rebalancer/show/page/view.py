"""The base class of all parts of the page's document."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

VERSION = 1
"""Version of the document; a browser with an older page loads it again."""


class View(BaseModel):
    """A part of the document."""

    model_config = ConfigDict(frozen=True)
