"""Files with flipped and missing bytes: what a reader may do with them."""

import contextlib

import numpy as np


def check(files, read, times, seed=0):
    """Damages one file at a time; a reader may read it or raise one line, nothing else.

    Args:
        files: paths; they are put back.
        read: reads all of them.
        times: how many damages.
        seed: of the generator.

    Returns:
        How many damages were read without an error, such as those to a comment.
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
    place = int(random.integers(len(content)))
    kind = random.integers(4)
    if kind == 0:
        return content[:place]
    if kind == 1:  # a few bytes are gone
        return content[:place] + content[place + int(random.integers(1, 9)) :]
    changed = bytearray(content)
    for _ in range(1 if kind == 2 else int(random.integers(2, 20))):
        changed[int(random.integers(len(content)))] ^= 1 << int(random.integers(8))
    return bytes(changed)
