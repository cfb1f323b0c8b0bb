"""Instruction sets of the processor."""

import pathlib

_INSTRUCTION_SETS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


def instruction_sets():
    """Return those instruction sets of the processor that matter for matmuls, a list of names.

    The names are those of Linux; on other systems, the list is empty.

    Example:

    >>> set(instruction_sets()) <= set(_INSTRUCTION_SETS)
    True
    """
    try:
        flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        return []
    return [name for name in _INSTRUCTION_SETS if name in flags]


def has_bfloat16():
    """Return True if the processor multiplies matrices in bfloat16 faster than in float32.

    Example:

    >>> has_bfloat16() in (True, False)
    True
    """
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(instruction_sets())
