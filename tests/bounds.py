"""How long tests wait for what must come: so long that only a hang meets it.

A machine may be slow and busy. A test that fails by a bound of time on a good tree teaches people
to ignore it, so bounds are either on a driven clock or this wide.
"""

from __future__ import annotations

__all__ = ["HANG_S"]

HANG_S = 300.0
