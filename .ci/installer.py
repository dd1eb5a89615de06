"""What installs packages into an environment, for the checks here."""

from __future__ import annotations

from pathlib import Path

_UV = Path(__file__).resolve().parent.parent / ".venv" / "bin" / "uv"


def installer(python: Path) -> list[str]:
    """Return the command, without packages: by uv, in half of the time, where `make` has it.

    pip makes a wheel, which it keeps: PySpark comes as source.
    """
    if _UV.exists():
        return [str(_UV), "pip", "install", "--quiet", "--python", str(python)]
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    return [*pip, "--no-compile", "--use-pep517"]
