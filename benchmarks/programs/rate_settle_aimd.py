"""`rate_settle` with the estimator `aimd`."""

from __future__ import annotations

from benchmarks.programs.rate_settle import main

if __name__ == "__main__":
    main("penstock", "aimd")
