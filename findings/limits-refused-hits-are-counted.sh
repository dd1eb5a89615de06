#!/bin/sh
# limits 5.8.0: with the fixed window a hit that is refused is counted all the same; with the moving
# window and the sliding window counter it is not.
#
# All three share one interface, so the same calls were expected to have the same effect: after one
# request for 11 of 10 an hour, which no limiter can grant, the fixed window refuses everything for
# the rest of the hour, `test` says so as well, and nothing remains. The other two go on as if it had
# not been asked. A caller that asks for many at once, and for fewer when it is refused, gets nothing
# with the one and its full rate with the others. Seen, of 10 an hour:
#
#   FixedWindowRateLimiter: hit 11 False, hit 5 False, remaining 0, hit 5 False
#   MovingWindowRateLimiter: hit 11 False, hit 5 True, remaining 5, hit 5 True
#   SlidingWindowCounterRateLimiter: hit 11 False, hit 5 True, remaining 5, hit 5 True
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q limits==5.8.0
cd "$work"
cat > look.py << 'END'
from limits import parse, strategies
from limits.storage import MemoryStorage

hourly = parse("10/hour")
for kind in ("FixedWindow", "MovingWindow", "SlidingWindowCounter"):
    limiter = getattr(strategies, f"{kind}RateLimiter")(MemoryStorage())
    first = limiter.hit(hourly, "key", cost=11)
    second = limiter.hit(hourly, "key", cost=5)
    left = limiter.get_window_stats(hourly, "key").remaining
    third = limiter.hit(hourly, "key", cost=5)
    print(f"{type(limiter).__name__}: hit 11 {first}, hit 5 {second}, remaining {left}, hit 5 {third}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
