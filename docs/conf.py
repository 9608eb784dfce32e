"""The site of docs/: `pip install . --group docs`, then
`sphinx-build -W docs build/site`.

The pages are plain Markdown, for GitHub as well; the site's own are index.md (the
navigation) and the names of api.md. Nothing is loaded from other hosts.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = "https://github.com/fastredlock/fastredlock"
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")
INSIDE = re.compile(r"^docs/.*\.(md|svg)$|^bench/.*\.svg$")
# What a call returns: its constructor is not for users.
RETURNED = {"AwaitableRate", "Campaign", "Lease", "Lock", "Lost", "Permit", "Rate"}

project = "fastredlock"
extensions = [
    *("myst_parser", "sphinx_copybutton"),
    *("sphinx.ext.autodoc", "sphinx.ext.autosummary"),
]
exclude_patterns = ["README.md", "recipes", "_templates"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = project
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["tables.js"]
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_baseurl = "https://fastredlock.github.io/fastredlock/"
html_theme_options = {
    "source_repository": f"{REPOSITORY}/",
    "source_branch": "main",
    "source_directory": "docs/",
    "top_of_page_buttons": ["edit"],
    "light_css_variables": {
        "color-brand-primary": "#a32020",
        "color-brand-content": "#a32020",
        "color-brand-visited": "#7d3030",
    },
    "dark_css_variables": {
        "color-brand-primary": "#ff8a80",
        "color-brand-content": "#ff8a80",
        "color-brand-visited": "#d9a0a0",
    },
}
highlight_language = "text"
pygments_style = "tango"
pygments_dark_style = "github-dark"

myst_heading_anchors = 4  # as GitHub makes them

default_role = "py:obj"  # of docstrings, where `code` is a name or code
autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_member_order = "bysource"
autodoc_type_aliases = {name: name for name in ("Credentials", "Master", "OnLost")}
suppress_warnings = ["ref.python"]  # names of both clients, as `Lock`
maximum_signature_line_length = 60  # one parameter a line beyond that
python_use_unqualified_type_names = True
add_module_names = False


def mend(text: str, folder: str) -> str:
    """Lead the links of a page in this folder of docs/ that leave it to GitHub."""
    return LINK.sub(lambda found: mended(found[1], folder), text)


def mended(link: str, folder: str) -> str:
    """Return where one link leads to."""
    path = posixpath.normpath(posixpath.join("docs", folder, link))
    if re.match(r"^(https?|mailto):", link) or INSIDE.match(path):
        return link
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/main/{path}"


def on_source(app: Any, name: str, source: list[str]) -> None:
    """Mend the links of a page; the home is README.md, with the navigation behind."""
    if name == "index":
        home = Path(app.srcdir, "README.md")
        app.env.note_dependency(home, docname=name)
        source[0] = home.read_text("utf-8") + source[0]
    source[0] = mend(source[0], posixpath.dirname(name))


def on_signature(
    _app: Any,
    what: str,
    name: str,
    _: Any,
    _options: Any,
    given: str | None,
    _type: Any,
) -> tuple[str, None] | None:
    """Leave out the constructors that are not for users."""
    hidden = what == "class" and name.rpartition(".")[2] in RETURNED
    return ("", None) if hidden and given else None


def on_doctree(app: Any, doctree: Any) -> None:
    """Put drawings into the page: their text is selected, and follows its colours."""
    from docutils import nodes

    for image in list(doctree.findall(nodes.image)):
        path = Path(app.srcdir, image["uri"])
        if path.parent.name == "pictures":
            drawing = nodes.raw("", path.read_text("utf-8"), format="html")
            image.replace_self(drawing)


def setup(app: Any) -> None:
    """Connect them."""
    app.connect("source-read", on_source)
    app.connect("autodoc-process-signature", on_signature)
    app.connect("doctree-read", on_doctree)
