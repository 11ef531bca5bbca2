"""What every part of the page's document is made of."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

VERSION = 1
"""Of the document; a browser that kept an older page loads it anew."""


class View(BaseModel):
    """A part of the document."""

    model_config = ConfigDict(frozen=True)
