"""What the monitor costs with 64 receivers and 1,000 batches: memory, a point, a page, a scrape.

Times are of the processor.
"""

from __future__ import annotations

import time
import tracemalloc
from statistics import median

from benchmarks.programs._fed_model import BATCHES, Fed
from benchmarks.programs._program import tell
from penstock.monitor.web.exchange import Request
from penstock.monitor.web.routes import Metrics
from penstock.monitor.web.status import Status

POINTS = 700
"""More than the ten minutes that have a point a second; the first one takes the memory of a day."""
ROUNDS = 20


def cost_ms(action):
    """Return the milliseconds of the processor that an action takes, in the median."""
    found = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        action()
        found.append((time.process_time() - begun) * 1000)
    return median(found)


tracemalloc.start()
fed = Fed()
for number in range(BATCHES):
    fed.batch(number)
for _ in range(POINTS):
    fed.pass_second()
memory_mib = tracemalloc.get_traced_memory()[0] / (1 << 20)
tracemalloc.stop()
status, metrics = Status(fed.model), Metrics(fed.model)
request = Request("GET", "/api/penstock/status")
tell(
    {
        "figures": {
            "memory_mib": memory_mib,
            "tick_ms": cost_ms(fed.pass_second),
            "status_ms": cost_ms(lambda: status.answer(request)),
            "metrics_ms": cost_ms(lambda: metrics.answer(Request("GET", "/metrics"))),
        }
    }
)
