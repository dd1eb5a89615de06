"""What the tests of a process share: it is ended before pytest is.

Not by `atexit`: pytest-xdist 3.8 kills a process that does not end within ten seconds of its last
test, and servers stay.
"""

import contextlib

until_the_end = contextlib.ExitStack()
