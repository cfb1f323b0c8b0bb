"""What a file of a stranger may cost: 10 seconds, and 2 GB or a multiple of its size.

A reader checks the counts and sizes that a file declares before it spends time or memory on them.
"""

# Bytes that are read or parsed as a whole.
MAX_FILE = 2**31  # weights and graphs; the limit of protocol buffers
MAX_TEXT = 2**26  # JSON, XML and vocabularies; a tokenizer.json with 2**19 tokens has 2**25
# Binary lists of tensors, which Python code reads: 2 microseconds for a byte. BERT-Large with
# Adam's slots has 2**20.
MAX_HEADER = 2**22

# Items, by the time that each takes.
MAX_ITEMS = 3 * 2**20  # 2 microseconds; the training graph of BERT-Large has 2**20 fields
MAX_TOKENS = 2**20  # 7 microseconds; the largest vocabulary of a published BERT has 2**19
MAX_OBJECTS = 2**14  # 0.3 milliseconds: tensors, members, operations; BERT-Large has 3,200
MAX_LAYERS = 100  # 80 milliseconds; the largest published BERT has 48
MAX_NAME = 2**10  # characters of a name or a token
MAX_DEPTH = 100
MAX_RANK = 8  # of an array; BERT's weights have at most 3 dimensions

# Bytes of memory per byte of weights: float16 can become float32, and LoRA adds matrices.
GROWTH = 3
EXTRA = 2**20  # bytes that any file may need besides
EXPANSION = 100  # bytes of unpacked files per byte of an archive; weights compress little


def check(count: int, unit: str, limit: int, source: object = "") -> None:
    """Raise a `ValueError` if a file has more of something than a limit of this module.

    Without the `source`, the caller adds the file to the error.
    """
    if count > limit:
        prefix = f"{source}: " if source else ""
        raise ValueError(f"{prefix}{count} {unit}, at most {limit} are allowed")


def check_growth(needed: int, unit: str, size: int, growth: int = GROWTH) -> None:
    """Raise a `ValueError` if a file of `size` bytes needs much more than `growth` times them."""
    check(needed, unit, growth * size + EXTRA)
