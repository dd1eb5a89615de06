"""What the site has beside the pages of docs/, for MkDocs, which calls this as its hooks.

- A page for each public package, which mkdocstrings fills from the docstrings: one entry for each
  name in its `__all__` that is Penstock's own.
- A page for each file outside docs/ that a page links to (tests, examples, CONTRIBUTING.md), so
  that every link of the site leads into the site. On GitHub the same links lead to the files.
"""

from __future__ import annotations

import ast
import functools
import os
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
SHOWN = "files"
"""The site's folder for files of the repository."""

PACKAGES = {
    "reference/streaming.md": ("penstock.streaming", "penstock/streaming/__init__.py"),
    "reference/receiver.md": ("penstock.receiver", "penstock/receiver/__init__.py"),
    "reference/sources.md": ("penstock.sources", "penstock/sources/__init__.py"),
    "reference/sources-kafka.md": ("penstock.sources.kafka", "penstock/sources/kafka/__init__.py"),
    "reference/settings.md": ("penstock.settings", "penstock/settings/__init__.py"),
}

LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?(\))")
CODE = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.DOTALL | re.MULTILINE)
LANGUAGES = {".py": "python", ".sh": "sh", ".yml": "yaml", ".toml": "toml", ".cfg": "ini"}
NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of packages, and those of files that are linked to, from wherever."""
    for uri, (package, source) in PACKAGES.items():
        files.append(File.generated(config, uri, content=api_page(package, ROOT / source)))
    waiting = [
        path for file in files.documentation_pages() for path in linked(file.src_uri, pages=files)
    ]
    while waiting:
        path = waiting.pop()
        uri = shown_as(path)
        if files.get_file_from_path(uri) is not None:
            continue
        generated = File.generated(
            config, uri, content=page_of(path), inclusion=InclusionLevel.NOT_IN_NAV
        )
        files.append(generated)
        waiting += links_outside(origin_text(path), posixpath.dirname(path))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to files outside docs/ to their pages."""
    uri = page.file.src_uri
    if uri in PACKAGES:
        return markdown
    path = uri.removeprefix(f"{SHOWN}/")
    if path == uri:
        path = f"docs/{uri}"
    elif not is_page(path):
        return markdown
    folder = posixpath.dirname(path)
    return outside_code(markdown, functools.partial(_relinked, folder, uri))


def api_page(package: str, source: Path) -> str:
    """Return the page of a package: an entry for each public name that is Penstock's own."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    foreign = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("penstock")
        for alias in node.names
    }
    (names,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == "__all__"
    )
    entries = [f"::: {package}.{name}" for name in names if name not in foreign]
    return "\n\n".join([f"# {package}", *entries]) + "\n"


def is_page(path: str) -> bool:
    """Whether a file outside docs/ is shown as the page that it is, and not as code."""
    return path.endswith(".md") and (ROOT / path).is_file()


def shown_as(path: str) -> str:
    """Return the place in the site of a file or folder outside docs/."""
    return f"{SHOWN}/{path}" if is_page(path) else f"{SHOWN}/{path}.md"


def origin_text(path: str) -> str:
    """Return the Markdown in which a file outside docs/ may have links."""
    return (ROOT / path).read_text(encoding="utf-8") if is_page(path) else ""


def page_of(path: str) -> str:
    """Return the page that shows a file or folder outside docs/."""
    whole = ROOT / path
    if is_page(path):
        return origin_text(path)
    if whole.is_dir():
        names = sorted(entry.name for entry in whole.iterdir() if not entry.name.startswith("_"))
        listed = "\n".join(f"- `{name}`" for name in names)
        return f"{NOT_SEARCHED}# {path}\n\n{listed}\n"
    text = whole.read_text(encoding="utf-8").rstrip()
    language = LANGUAGES.get(whole.suffix, "text")
    return f"{NOT_SEARCHED}# {path}\n\n````{language}\n{text}\n````\n"


def linked(uri: str, pages: Files) -> list[str]:
    """Return the files outside docs/ that a page of docs/ links to."""
    file = pages.get_file_from_path(uri)
    if file is None or uri in PACKAGES:
        return []
    return links_outside(file.content_string, posixpath.dirname(f"docs/{uri}"))


def links_outside(markdown: str, folder: str) -> list[str]:
    """Return the files outside docs/ that a text links to which stands in `folder`."""
    found = []
    for match in LINK.finditer(CODE.sub("", markdown)):
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        if not path.startswith(("docs/", "..")) and (ROOT / path).exists():
            found.append(path)
    return found


def outside_code(markdown: str, change: functools.partial[str]) -> str:
    """Change a text, but for the code in it."""
    parts = CODE.split(markdown)
    parts[::2] = [change(part) for part in parts[::2]]
    return "".join(parts)


def _relinked(folder: str, uri: str, text: str) -> str:
    """Return the text with links from `folder` of the repository made links from `uri`."""

    def lead(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        if not (ROOT / path).exists():
            return match[0]  # MkDocs tells of it
        target = path.removeprefix("docs/") if path.startswith("docs/") else shown_as(path)
        relative = os.path.relpath(target, posixpath.dirname(uri) or ".")
        return f"{match[1]}{relative}{match[3] or ''}{match[4]}"

    return LINK.sub(lead, text)
