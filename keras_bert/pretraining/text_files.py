"""Text files of any size, compression and encoding, as blocks of whole lines.

`chunks` decompresses a file and converts it to UTF-8 bytes. `blocks` turns these into strings of
whole lines. A block has about a megabyte, so the memory does not depend on the size of the file.
"""

import bz2
import codecs
import gzip
import itertools
import lzma
import zlib
from typing import Any

BLOCK = 1 << 20  # bytes per read
LONGEST = 4 << 20  # maximum characters of a line and, within one block, of a document
LONGEST_RECORD = 64 << 20  # maximum characters of a JSON line or a wiki page

# Limits of compressed files, so that a small file cannot take much memory or time.
_MAX_MEMORY = 2**28  # bytes for the window of xz; `xz -9` has 2**26
_MAX_EXPANSION = 1000  # decompressed size / size of the file
_ALWAYS_ALLOWED_BYTES = 2**28  # decompressed size that any file may have

_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x50\x2a\x4d\x18": "zstd",  # a skippable frame, with which pzstd begins
}
_ENCODINGS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_REPLACEMENT = "\ufffd"
# A text with this many invalid bytes, and above this share of its characters, is not UTF-8.
_MANY_INVALID, _INVALID_SHARE = 50, 0.1


def chunks(path):
    """Yield the decompressed UTF-8 bytes of a file, without a byte order mark, in about `BLOCK`.

    The content determines the compression (gzip, bzip2, xz or zstd) and the encoding (UTF-8 or
    UTF-16). A damaged or binary file is a `ValueError`.
    """
    return _decoded(path, _decompressed(path))


def _decompressed(path):
    """Yield the bytes of a file in chunks of `BLOCK`; the last chunk is shorter."""
    with open(path, "rb") as file:
        magic = file.read(6)
    kind = next(
        (
            kind
            for start, kind in _MAGIC.items()
            # A truncated file may have only a part of the magic bytes.
            if magic.startswith(start) or (not magic.isascii() and start.startswith(magic))
        ),
        None,
    )
    if kind is None:
        with open(path, "rb") as file:
            while chunk := file.read(BLOCK):
                yield chunk
        return
    damaged: tuple = (EOFError, zlib.error, lzma.LZMAError, OSError)
    decompressors: dict[str, Any] = {
        "bzip2": bz2.BZ2Decompressor,
        "xz": lambda: lzma.LZMADecompressor(memlimit=_MAX_MEMORY),
    }
    if kind == "zstd":
        zstandard = _zstandard(path)
        damaged += (zstandard.ZstdError,)
        decompressors["zstd"] = lambda: zstandard.ZstdDecompressor().decompressobj()
    try:
        if kind == "gzip":
            with gzip.open(path) as file:
                yield from _limited(path, iter(lambda: file.read(BLOCK), b""))
        else:
            yield from _limited(path, _of_one_size(_streams(path, kind, decompressors[kind])))
    except damaged as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{path}: this {kind} file is damaged or truncated, or needs too much memory ({reason})"
        ) from error


def _zstandard(path):
    try:
        import zstandard
    except ImportError as error:
        raise ValueError(
            f"{path}: zstd files need zstandard; run: pip install 'keras3-bert[pretraining]'"
        ) from error
    return zstandard


def _limited(path, chunks):
    """Yield chunks, or raise a `ValueError` if they are much larger than the file."""
    limit = max(_MAX_EXPANSION * path.stat().st_size, _ALWAYS_ALLOWED_BYTES)
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise ValueError(
                f"{path}: must decompress to at most {limit} bytes; received more. If you trust "
                "the file, decompress it and use the result"
            )
        yield chunk


def _streams(path, kind, decompressor_of):
    """Decompress the concatenated streams of a file, such as one of Wikipedia's dumps."""
    # `bz2.open` and `lzma.open` ignore damaged data after the first stream.
    decompressor = None
    with open(path, "rb") as file:
        # Small reads, because 256 bytes of zstd decompress to up to 8 MB.
        while packed := file.read(256):
            while packed:
                if decompressor is None:
                    packed = packed.lstrip(b"\0")  # padding
                    if not packed:
                        break
                    decompressor = decompressor_of()
                if kind == "zstd":  # it has no limit for the output
                    yield decompressor.decompress(packed)
                else:
                    yield from _outputs(decompressor, packed)
                packed = b""
                if decompressor.eof:
                    packed, decompressor = decompressor.unused_data, None
    if decompressor is not None:
        raise EOFError("the file ends within a stream")


def _outputs(decompressor, packed):
    """Decompress bytes of bzip2 or xz into chunks of at most `BLOCK`."""
    yield decompressor.decompress(packed, BLOCK)
    while not (decompressor.eof or decompressor.needs_input):
        yield decompressor.decompress(b"", BLOCK)


def _of_one_size(chunks):
    """Join and cut chunks to the size `BLOCK`."""
    held, size = [], 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size >= BLOCK:
            joined = b"".join(held)
            complete = size - size % BLOCK
            for at in range(0, complete, BLOCK):
                yield joined[at : at + BLOCK]
            held, size = [joined[complete:]], size - complete
    if size:
        yield b"".join(held)


def _decoded(path, chunks):
    """Remove the byte order mark and convert UTF-16 to UTF-8."""
    first = next(chunks, b"")
    mark, encoding = next(
        (item for item in _ENCODINGS.items() if first.startswith(item[0])), (b"", "utf-8")
    )
    chunks = itertools.chain([first[len(mark) :]], chunks)
    if encoding != "utf-8":
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        chunks = (decoder.decode(chunk).encode("utf-8", "replace") for chunk in chunks)
    for chunk in chunks:
        if b"\0" in chunk:
            raise ValueError(f"{path}: contains NUL bytes; a corpus must consist of text files")
        yield chunk


def blocks(path, chunks, counts, long_lines="cut"):
    r"""Yield (number of the first line, text) from bytes: whole lines, with invalid UTF-8 replaced.

    The text ends with `"\n"`, except at a cut and at the end of the file. `path` is for messages.
    `counts` is a `collections.Counter` for repairs, see `corpus.documents`. `long_lines`: `"cut"`
    cuts lines above `LONGEST` bytes, at a space if possible; `"split"` splits long lines at any
    character; `"refuse"` raises a `ValueError` above `LONGEST_RECORD`.
    """
    longest = {"cut": LONGEST, "split": 0, "refuse": LONGEST_RECORD}[long_lines]
    held, line, in_long_line = b"", 1, False
    for chunk in itertools.chain(chunks, [b""]):
        at = len(held)
        held += chunk
        # A "\r" at the end of a chunk may be the first half of "\r\n".
        end = held.rfind(b"\n", at) + 1 or held.rfind(b"\r", max(0, at - 1), -1) + 1
        if not chunk:
            end = len(held)
        elif not end and len(held) > longest:
            if long_lines == "refuse":
                raise ValueError(
                    f"{path}, line {line}: a line must be shorter than {longest} bytes; split it"
                )
            end = _whole_characters(held)
            if long_lines == "cut":
                if not in_long_line:
                    _count(counts, "long_lines", path, line)
                end = held.rfind(b" ", 1) + 1 or end
            in_long_line = True
        elif end:
            in_long_line = False
        if not end:
            continue
        text = _decode(path, line, held[:end], counts)
        held = held[end:]
        yield line, text
        line += text.count("\n")


def _whole_characters(data):
    """Return the number of bytes before a possibly incomplete UTF-8 character at the end."""
    start = len(data) - 1
    while start > len(data) - 4 and data[start] & 0xC0 == 0x80:
        start -= 1
    return start if data[start] >= 0xC0 else len(data)


def _count(counts, key, path, line):
    counts[key] += 1
    counts.setdefault(f"{key}_at", f"{path.name}, line {line}")


def _decode(path, first, data, counts):
    """Decode UTF-8, replace invalid bytes by U+FFFD and count the lines that contain them."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    lines, replaced = data.split(b"\n"), 0
    for index, line in enumerate(lines):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            repaired = line.decode("utf-8", "replace")
            replaced += repaired.count(_REPLACEMENT)
            lines[index] = repaired.encode("utf-8")
            _count(counts, "invalid_utf8", path, first + index)
            invalid, where = error.object[error.start], first + index
    text = b"\n".join(lines).decode("utf-8")
    if replaced >= _MANY_INVALID and replaced > len(text) * _INVALID_SHARE:
        raise ValueError(
            f"{path}: must be text in UTF-8; received {replaced} invalid bytes, "
            f"such as 0x{invalid:02x} in line {where}, among {len(text)} characters"
        )
    return text
