"""How slow this machine is, for tests that limit the time of something."""

import functools
import time

_SECONDS = 0.05  # what `slowness` computes takes this long on the machine of the limits


@functools.cache
def slowness():
    """Return how many times longer than on that machine Python computes here, at least 1."""
    start = time.process_time()
    sum(number * number for number in range(1_000_000))
    return max(1.0, (time.process_time() - start) / _SECONDS)
