"""What the attempts of `test_attempts` run: a plan is code."""

from __future__ import annotations

import pickle
import sys


def main() -> None:
    """Run the code that is on standard input."""
    exec(pickle.load(sys.stdin.buffer), {})
