"""Packages come from where the machine's own settings say: no file names a registry's host."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]

# In pieces, so that this file has none of them.
_NAMES = (
    r"repo1?\.maven",
    r"maven-central\.",
    r"central\.sonatype",
    r"oss\.sonatype",
    r"pypi\.(?:org|python)",
    r"pythonhosted\.",
    r"registry\.npmjs|registry\.yarnpkg",
    r"(?:cdn\.)?jsdelivr\.|unpkg\.|cdnjs\.",
    r"conda\.anaconda|repo\.anaconda",
    r"index\.crates|static\.crates|rubygems\.",
    r"proxy\.golang",
    r"registry-1\.docker|(?:^|[^.\w])docker\.io|quay\.io|ghcr\.io|gcr\.io",
    r"(?:deb|archive|security)\.(?:debian|ubuntu)",
)
_HOST = re.compile("|".join(_NAMES), re.IGNORECASE)


def hosts_in(text: str) -> list[str]:
    """Return the hosts of registries that a text names."""
    return [match[0] for match in _HOST.finditer(text)]


@pytest.mark.long
def test_no_tracked_file_names_the_host_of_a_package_registry() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=_ROOT, capture_output=True, text=True, timeout=60
    )
    if listed.returncode:
        pytest.skip("platform: no checkout of git, so that no file is tracked")
    found = {}
    for name in filter(None, listed.stdout.split("\0")):
        path = _ROOT / name
        # A file that is removed and not yet committed is still listed.
        text = path.read_text(errors="replace") if path.is_file() else ""
        if hosts := hosts_in(text):
            found[name] = hosts
    assert found == {}


@pytest.mark.parametrize(
    "parts",
    [
        ("https://repo", ".maven.apache.org/maven2"),
        ("https://files.", "python", "hosted.org/packages"),
        ("https://py", "pi.org/simple"),
        ("https://registry", ".npmjs.org/left-pad"),
        ("image: docker", ".io/library/python"),
    ],
)
def test_a_host_is_found_where_there_is_one(parts: tuple[str, ...]) -> None:
    assert len(hosts_in("".join(parts))) == 1
