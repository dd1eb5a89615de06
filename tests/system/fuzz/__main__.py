"""``python -m tests.system.fuzz``: attacks all ports for minutes and tells what came of it.

A tracker and a block server run without TLS, and others with it. They are sent random bytes and
changed recordings of what real clients say, with the secret and without. At the same time the
page's server is sent requests that are malformed, oversized, slow or one upon another, has a
thousand clients of its events at once, and clients that read nothing. It fails when

- one of the processes ends, or logs a traceback or a resource that was not closed;
- a good peer's ask has no answer within 30 s or a wrong one, its connection is cut, a block that
  it reads is wrong, or a block that it added is not in exactly one batch, in order;
- 90 s after the end there are more descriptors than before, or more threads but for those of the
  event loops' own pools;
- memory grows: after a warm-up of a fifth of the run (at most two minutes), the least
  anonymous memory in the last third of the time is more than 8 MiB above that in the first;
- the page's server does not answer a probe and a command within 30 s, or does what nobody has
  proved the right to.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.system.fuzz.campaign import Campaign
from tests.system.fuzz.http_campaign import HttpCampaign


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.system.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    seconds = options.minutes * 60
    _say(f"seed {options.seed}")
    with (
        tempfile.TemporaryDirectory(prefix="penstock-fuzz-") as folder,
        Campaign(Path(folder), options.seed, _say) as campaign,
        HttpCampaign(Path(folder), options.seed, _say) as page,
        ThreadPoolExecutor(1, "fuzz-http") as beside,
    ):
        warm_up_s = min(120.0, seconds / 5)
        of_page = beside.submit(page.run, seconds=seconds, warm_up_s=warm_up_s)
        campaign.run(seconds=seconds, warm_up_s=warm_up_s)
        of_page.result()
    _say("nothing broke, leaked or grew")


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
