"""`rate_settle` with `pyspark.streaming`."""

from __future__ import annotations

from benchmarks.programs.rate_settle import main

if __name__ == "__main__":
    main("pyspark", "pid")
