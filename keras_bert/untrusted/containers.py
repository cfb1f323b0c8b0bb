"""Check zip and HDF5 files before their content is read.

A small file can declare many gigabytes: compressed or overlapping zip members, HDF5 datasets that
were never written. These checks ensure that reading a file needs no more memory than its size.
"""

import os
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from keras_bert.runtime.reading import one_line

MAX_RANK = 8  # Dimensions of a tensor. BERT's have at most 3.


def check_zip(file: Path | IO[bytes]) -> list[zipfile.ZipInfo]:
    """Return the members of a zip file, after checking that they are uncompressed and fit into it.

    Keras, NumPy and torch write such files.
    """
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        stream: Any = archive.fp
        size = stream.seek(0, os.SEEK_END)
    names = set()
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            kind = "encrypted" if member.flag_bits & 1 else "compressed"
            raise ValueError(
                f"the member {member.filename!r} is {kind}; it must be stored uncompressed"
            )
        if member.filename in names:
            raise ValueError(f"the member {member.filename!r} occurs twice")
        names.add(member.filename)
    declared = sum(member.file_size for member in members)
    if declared > size:
        raise ValueError(f"the members overlap: they declare {declared} bytes in a file of {size}")
    return members


def read_npz(file: Path) -> dict[str, np.ndarray]:
    """Return name -> array of a file that `numpy.savez` wrote."""
    with open(file, "rb") as stream:  # NumPy does not close a broken file
        try:
            check_zip(stream)
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as opened:
                arrays = {name: opened[name] for name in opened.files}
        except Exception as error:  # NumPy and zipfile raise many types
            raise ValueError(one_line(error)) from error
    for name, array in arrays.items():
        # NumPy returns other members as bytes.
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufU":
            raise ValueError(f"{name!r} is not an array of numbers or of text")
    return arrays


def check_hdf5(opened: Any, size: int) -> dict[str, tuple[int, ...]]:
    """Check that all datasets are in an HDF5 file, uncompressed and written; return name -> shape.

    `opened` is an `h5py.File`, and `size` is the size of the file in bytes. Links are not followed.
    """
    import h5py

    shapes: dict[str, tuple[int, ...]] = {}
    declared = 0

    def visit(name: str, item: Any) -> None:
        nonlocal declared
        if not isinstance(item, h5py.Dataset):
            return
        properties = item.id.get_create_plist()
        if item.external or item.is_virtual:
            raise ValueError(f"{name!r} must be in the file itself, received a reference")
        if properties.get_nfilters():
            raise ValueError(f"{name!r} is compressed; it must be stored uncompressed")
        if item.dtype.hasobject:
            raise ValueError(f"{name!r} must hold numbers, received {item.dtype}")
        stored = item.id.get_storage_size()
        if item.nbytes > stored:
            raise ValueError(
                f"{name!r} declares {item.nbytes} bytes, but the file holds {stored} bytes of it"
            )
        declared += item.nbytes
        if declared > size:
            raise ValueError(
                f"the datasets overlap: they declare more than the file's {size} bytes"
            )
        shapes[name] = item.shape

    opened.visititems(visit)
    return shapes
