"""The page of a cluster as one file: the same code and documents, but nothing is asked of a server."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

from pydantic import JsonValue

_FROM_SERVER = "export class Refusal extends Error {}\n" + (
    'const documents = JSON.parse(document.getElementById("documents").textContent);\n'
    "export const ask = async (path) => documents[path.split(/[/?]/).findLast((part) => part in documents)];\n"
)
"""What takes the place of `server.js`: the answers are in the file."""

_POLICY = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:"


def page_folder() -> Path:
    """Return the folder of the page's files: in the package if the wheel is installed, else in the source tree."""
    packaged = Path(__file__).parents[1] / "page"
    plugin = Path(__file__).parents[3] / "plugins" / "pulsar_rebalancer_airflow"
    return packaged if packaged.is_dir() else plugin / "overview" / "static"


def page_file(overview: JsonValue, timeline: JsonValue) -> str:
    """Return the page with these documents (`page_model.Overview`, `timeline.Timeline`)."""
    folder = page_folder()
    modules = {file.name: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.js"))}
    modules["server.js"] = _FROM_SERVER
    # A module in a data: address has no folder, so others are found by their bare names.
    imports = {name: _data(re.sub(r'from "\./([\w.]+)"', r'from "\1"', text)) for name, text in modules.items()}
    documents = json.dumps({"overview": overview, "timeline": timeline}).replace("<", "\\u003c")
    head = [
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<style>{(folder / 'page.css').read_text(encoding='utf-8')}</style>",
        f'<script type="application/json" id="documents">{documents}</script>',
        f'<script type="importmap">{json.dumps({"imports": imports})}</script>',
        '<script type="module">import "main.js";</script>',
    ]
    shell = (folder / "page.html").read_text(encoding="utf-8").replace("@BASE@", "")
    # Nothing will change.
    shell = shell.replace("<footer>", "<footer hidden>").replace(" checked>", ">")
    shell = re.sub(r'<link rel="(?:icon|stylesheet)".*>\n', "", shell)
    return re.sub(r'<script type="module".*</script>', lambda _: "\n".join(head), shell, count=1)


def _data(script: str) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(script.encode()).decode()}"
