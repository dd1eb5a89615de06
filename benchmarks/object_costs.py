"""What a host that logs on an object store costs a month: the table of `docs/costs.md`.

``python -m benchmarks.object_costs`` prints it, of the requests that `benchmarks.object_requests`
counted and of prices that are given: of 1,000 requests that write or list, of 1,000 that read, of a
GB for a month. Deletions cost nothing with S3 and Google.
"""

from __future__ import annotations

import argparse
import math

PRICES = (0.005, 0.0004, 0.023)
PRICES_OF = "2026-11-30"
_MONTH_S = 30 * 86_400
_DAY_S = 86_400
_STORED_S = 120
"""A segment is a minute long, and goes when the batches of its blocks are complete."""
_OBJECT_BYTES = 8 << 20
"""`penstock.wal._objects`: more is several objects."""
_PUTS_OF_A_BATCH = 4
_CASES = ((1, 0.2, 1), (1, 1, 5), (10, 0.2, 1), (10, 1, 5))
_MEGABYTES = (1, 10, 100)


def puts_s(processes: int, block_s: float, batch_s: float, megabytes: float) -> float:
    """Return the requests that write in a second.

    Each process makes one for what its receivers have stored in a block interval, the ledger at
    most one for its entries of that, and a batch four.
    """
    each = megabytes * 1e6 * block_s / processes
    flushes_s = processes / block_s
    return flushes_s * (math.ceil(each / _OBJECT_BYTES) + 1) + _PUTS_OF_A_BATCH / batch_s


def gets_s(processes: int, block_s: float, megabytes: float) -> float:
    """Return the requests that read what comes in a second once more: one for each object."""
    each = megabytes * 1e6 * block_s / processes
    return processes / block_s * math.ceil(each / _OBJECT_BYTES)


def table(prices: tuple[float, float, float] = PRICES) -> str:
    """Return the table, in Markdown."""
    write, read, stored = prices
    rows: list[tuple[str, list[float], str]] = []
    for processes, block_s, batch_s in _CASES:
        of = "one process" if processes == 1 else f"{processes} processes"
        costs = [
            puts_s(processes, block_s, batch_s, megabytes) * _MONTH_S / 1000 * write
            for megabytes in _MEGABYTES
        ]
        moved = "`spark.penstock.receivers.perSlot`" if processes > 1 else "the block interval"
        rows.append(
            (f"requests: {of}, blocks of {block_s:g} s, batches of {batch_s} s", costs, moved)
        )
    kept = [megabytes / 1000 * stored for megabytes in _MEGABYTES]
    rows.append(("stored: two minutes", [cost * _STORED_S for cost in kept], "compression"))
    day = "stored: a day"
    rows.append((day, [cost * _DAY_S for cost in kept], "`spark.penstock.wal.retention`"))
    costs = [gets_s(1, 1, megabytes) * _DAY_S / 1000 * read for megabytes in _MEGABYTES]
    rows.append(("read: a day once more, in blocks of 1 s", costs, "`penstock replay`, lost hosts"))
    heads = ("dollars a month", *(f"{megabytes} MB/s" for megabytes in _MEGABYTES), "moved by")
    lines = [heads, ("---",) * len(heads)]
    lines += [(what, *map(_text, costs), moved) for what, costs, moved in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(cost: float) -> str:
    return f"{cost:,.0f}" if cost >= 10 else f"{cost:.2f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prices", default=",".join(map(str, PRICES)), help=f"of {PRICES_OF}")
    write, read, stored = map(float, parser.parse_args().prices.split(","))
    print(table((write, read, stored)))


if __name__ == "__main__":
    main()
