"""Damage files, and check that readers raise one-line errors."""

import contextlib

import numpy as np


def check(files, read, times, seed=0):
    """Damage one file at a time. The reader may succeed, or raise a one-line `ValueError`.

    Args:
        files: Paths of the files. They are restored.
        read: Function that reads all files.
        times: Number of damages.
        seed: Seed of the generator.

    Returns:
        Number of damages that the reader did not notice.
    """
    random = np.random.default_rng(seed)
    survived = 0
    for _ in range(times):
        file = files[random.integers(len(files))]
        content = file.read_bytes()
        file.write_bytes(_damaged(content, random))
        try:
            with contextlib.suppress(FileNotFoundError):
                read()
                survived += 1
        except ValueError as error:
            assert str(error) and "\n" not in str(error), error
        finally:
            file.write_bytes(content)
    read()
    return survived


def _damaged(content, random):
    position = int(random.integers(len(content)))
    kind = random.integers(4)
    if kind == 0:
        return content[:position]
    if kind == 1:  # remove a few bytes
        return content[:position] + content[position + int(random.integers(1, 9)) :]
    changed = bytearray(content)
    for _ in range(1 if kind == 2 else int(random.integers(2, 20))):
        changed[int(random.integers(len(content)))] ^= 1 << int(random.integers(8))
    return bytes(changed)
