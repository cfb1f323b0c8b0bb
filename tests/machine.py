"""How slow this machine is, for tests that limit the time of something."""

import functools
import time

_REFERENCE_SECONDS = 0.05  # on the machine where the limits of time were chosen


@functools.cache
def slowness():
    """Return how many times slower Python is here than on the reference machine, at least 1."""
    start = time.process_time()
    sum(value * value for value in range(1_000_000))
    return max(1.0, (time.process_time() - start) / _REFERENCE_SECONDS)
