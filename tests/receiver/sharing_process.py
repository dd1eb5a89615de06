"""A process that lets pass what a shared rate allows, and prints when how many did."""

from __future__ import annotations

import sys
import time

from penstock.receiver.shared_rate import SharedRate, SharedRateLimiter, SharedRatePlace


def fail(message: str, error: BaseException) -> None:
    raise SystemExit(f"{message}: {error}")


def main(address: str, rate: float, in_hand: int) -> None:
    """Go on until killed."""
    limiter = SharedRateLimiter()
    limiter.shared = SharedRate(SharedRatePlace(address, "records", rate, 1.0), on_error=fail)
    while True:
        passed = limiter.lease(1000, 1.0, in_hand=in_hand)
        if passed:
            print(time.monotonic(), passed, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
