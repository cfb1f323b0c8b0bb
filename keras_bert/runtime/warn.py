"""Warnings that name the user's line of code."""

import os
import pathlib
import sys

_PACKAGE = f"{pathlib.Path(__file__).parents[1]}{os.sep}"


def level_of_caller() -> int:
    """Return the `stacklevel` for which a warning of the calling function names the user's code."""
    frame = sys._getframe(1)
    level = 1
    while frame.f_back and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    return level
