"""Settings of Sphinx for the documentation site, which `make docs` builds from the repository's Markdown."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NAV = {
    "Start": ["runs", "page"],
    "Operate": [
        "operations",
        "control",
        "alerts",
        "metrics",
        "rolling-restarts",
        "splitting",
        "strategies",
        "replay",
        "deployment",
        "kubernetes",
        "maturity",
    ],
    "Look up": ["reference/settings", "reference/reason-codes", "reference/bad-input", "api"],
    "Understand": ["gain-shedder", "evidence", "performance", "simulation"],
    "Contribute": ["architecture", "/CONTRIBUTING", "/SECURITY", "/CHANGELOG"],
}
"""Pages in `docs`, or in the root if they begin with a slash, by caption; README.md has the same order."""

# Airflow writes its settings into its home when it is imported.
os.environ.setdefault("AIRFLOW_HOME", str(ROOT / ".cache" / "airflow-docs"))

project = "Pulsar rebalancer"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md"]
exclude_patterns = [each.name for each in ROOT.iterdir() if each.is_dir() and each.name != "docs"]
# As code hosts number them: links to headings work there and here.
myst_heading_anchors = 4
myst_enable_extensions = ["tasklist"]
# Docstrings have `code` between single backticks.
default_role = "code"
autodoc_member_order = "bysource"
# What a class takes is in its docstring.
autodoc_class_signature = "separated"
napoleon_use_ivar = True
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = project
html_static_path = ["site"]
html_css_files = ["tables.css"]
html_js_files = ["pictures.js"]
html_copy_source = False
html_show_sourcelink = False
# A browser lets no page that it opened from a file read the others.
html_show_search_summary = False

_LINK = re.compile(r"^\* \[`(\w+)`\]\((\.\./(?:include|plugins)/([\w/]+)\.py)\).*$", re.MULTILINE)


def setup(app: Any) -> None:
    """Register what pages for code hosts lack."""
    app.connect("source-read", _complete)
    app.connect("autodoc-process-docstring", _describe_fields)
    app.connect("autodoc-skip-member", _skip)
    app.connect("build-finished", _add_files)


def _complete(app: Any, page: str, source: list[str]) -> None:
    """Add the navigation to the first page; replace links to code with its documentation, or the code of an example."""
    if page == root_doc:
        for caption, pages in NAV.items():
            names = "\n".join(name if name[0] == "/" else f"/docs/{name}" for name in pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{names}\n```\n"
    elif page == "docs/api":
        source[0] = _LINK.sub(_documentation, source[0])


def _documentation(link: re.Match[str]) -> str:
    name, file, module = link.groups()
    if name.startswith("example_"):
        return f"```{{literalinclude}} {file}\n:caption: {name}.py\n:language: python\n```"
    directive = "autoclass" if name[0].isupper() else "autofunction"
    options = "   :members:\n   :exclude-members: __init__, __new__\n" if directive == "autoclass" else ""
    return f"```{{eval-rst}}\n.. {directive}:: {module.replace('/', '.')}.{name}\n{options}```"


def _skip(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out fields, which the docstring of their class explains."""
    default = getattr(member, "__name__", name) != name
    return True if default or type(member).__name__ == "_tuplegetter" or name == "model_config" else None


def _describe_fields(app: Any, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """Add a pydantic model's own fields, with their descriptions, as other docstrings have theirs."""
    fields = getattr(found, "model_fields", {}) if what == "class" else {}
    described = [f":ivar {field}: {fields[field].description}" for field in fields if field in found.__annotations__]
    lines += ["", *described]


def _add_files(app: Any, error: Exception | None) -> None:
    """Add the pictures, which pages name in HTML, and a first page where servers and readers look for it."""
    if error is None and app.builder.format == "html":
        shutil.copytree(ROOT / "docs" / "pictures", Path(app.outdir) / "docs" / "pictures", dirs_exist_ok=True)
        (Path(app.outdir) / "index.html").write_text('<meta http-equiv="refresh" content="0; url=README.html">\n')
