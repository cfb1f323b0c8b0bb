"""Peak memory of this process (Linux)."""

import pathlib
import re


def reset_peak():
    """Reset the peak of the resident memory to the current resident memory."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def peak():
    """Return the peak of the resident memory since the last reset, in bytes."""
    return _read_status("VmHWM")


def resident():
    """Return the current resident memory, in bytes."""
    return _read_status("VmRSS")


def _read_status(key):
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(rf"{key}:\s+(\d+)", status)[1])
