"""Open files that may be compressed with gzip, bzip2, xz or zstd. The content tells the kind."""

import bz2
import io
import lzma
import zlib

from keras_bert.runtime import budget
from keras_bert.runtime.packages import import_extra

BLOCK = 1 << 20  # bytes of the buffer
# Limits, so that a small file cannot take much memory or time.
_MAX_MEMORY = 2**28  # bytes for the window of xz; `xz -9` has 2**26
_ALWAYS_ALLOWED_BYTES = 2**28  # decompressed size that any file may have
_PACKED_BYTES = 256  # per read; 256 bytes of zstd decompress to up to 8 MB
_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x50\x2a\x4d\x18": "zstd",  # a skippable frame, with which pzstd begins
}


def open_decompressed(path):
    """Return a buffered binary stream of the decompressed content of a file.

    Reading a damaged file, or one that is much larger than its compressed form, is a `ValueError`.
    """
    file = open(path, "rb")  # noqa: SIM115 - the caller closes it
    magic = file.read(6)
    file.seek(0)
    for start, kind in _MAGIC.items():
        if magic.startswith(start):
            return io.BufferedReader(_ChunkStream(_decompressed(path, kind, file), file), BLOCK)
    return file


class _ChunkStream(io.RawIOBase):
    """A stream of the bytes that a generator yields. `file` is closed with the stream."""

    def __init__(self, chunks, file):
        super().__init__()
        self._chunks = chunks
        self._file = file
        self._chunk = b""

    def readable(self):
        return True

    def readinto(self, buffer):
        while not self._chunk:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._chunk = chunk
        size = min(len(buffer), len(self._chunk))
        buffer[:size] = self._chunk[:size]
        self._chunk = self._chunk[size:]
        return size

    def close(self):
        self._file.close()
        super().close()


def _decompressed(path, kind, file):
    """Yield the decompressed bytes of a file in chunks."""
    limit = max(budget.EXPANSION * path.stat().st_size, _ALWAYS_ALLOWED_BYTES)
    size = 0
    new_decompressor, errors = _decompressor(path, kind)
    try:
        for chunk in _streams(file, new_decompressor):
            size += len(chunk)
            if size > limit:
                raise ValueError(
                    f"{path}: must decompress to at most {limit} bytes; received more. If you "
                    "trust the file, decompress it and use the result"
                )
            yield chunk
    except errors as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{path}: this {kind} file is damaged or truncated, or needs too much memory ({reason})"
        ) from error


def _decompressor(path, kind):
    """Return a function that makes a decompressor of one stream, and the errors it raises."""
    if kind == "gzip":
        return lambda: zlib.decompressobj(wbits=31), (EOFError, zlib.error)
    if kind == "bzip2":
        return bz2.BZ2Decompressor, (EOFError, OSError)
    if kind == "xz":
        return lambda: lzma.LZMADecompressor(memlimit=_MAX_MEMORY), (EOFError, lzma.LZMAError)
    zstandard = import_extra("zstandard", "pretraining", path)
    decompressor = zstandard.ZstdDecompressor()
    return decompressor.decompressobj, (EOFError, zstandard.ZstdError)


def _streams(file, new_decompressor):
    """Yield the bytes of the concatenated streams of a file, such as one of Wikipedia's dumps."""
    # `bz2.open` and `lzma.open` ignore damaged data after the first stream.
    decompressor = None
    while packed := file.read(_PACKED_BYTES):
        while packed:
            if decompressor is None:
                packed = packed.lstrip(b"\0")  # padding between streams
                if not packed:
                    break
                decompressor = new_decompressor()
            yield from _outputs(decompressor, packed)
            packed = b""
            if decompressor.eof:
                packed = decompressor.unused_data
                decompressor = None
    if decompressor is not None:
        raise EOFError("the file ends within a stream")


def _outputs(decompressor, packed):
    """Yield the bytes that a part of a stream gives. 256 bytes of bzip2 may give gigabytes."""
    if not isinstance(decompressor, (bz2.BZ2Decompressor, lzma.LZMADecompressor)):
        yield decompressor.decompress(packed)
        return
    yield decompressor.decompress(packed, BLOCK)
    while not (decompressor.eof or decompressor.needs_input):
        yield decompressor.decompress(b"", BLOCK)
