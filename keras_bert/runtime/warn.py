"""Warnings that name the user's line of code."""

import pathlib
import sys


def level_of_caller() -> int:
    """Return the `stacklevel` for which a warning of the calling function names the user's code."""
    folder, frame, level = str(pathlib.Path(__file__).parents[1]), sys._getframe(1), 1
    while frame.f_back and frame.f_code.co_filename.startswith(folder):
        frame, level = frame.f_back, level + 1
    return level
