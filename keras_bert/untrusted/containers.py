"""Check zip and HDF5 files before their content is read.

A small file can declare many gigabytes: compressed or overlapping zip members, HDF5 datasets that
were never written. These checks ensure that reading a file needs no more memory than its size.
"""

import contextlib
import io
import os
import re
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from keras_bert.runtime import budget
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.reading import one_line, read_bytes
from keras_bert.untrusted.errors import invalid

_BFLOAT16 = "bfloat16"
# On Windows, backslash and ":" are separators, and names such as "nul" and "con.txt" are devices.
_FORBIDDEN = re.compile(r'[\\:*?"<>|]')
_DEVICE = re.compile(r"(con|prn|aux|nul|(com|lpt)[0-9]) *(\..*)?", re.IGNORECASE)


def is_below(name: str) -> bool:
    """Return True if a path from a file stays below its folder, on every system."""
    if not name.isprintable() or _FORBIDDEN.search(name):
        return False
    if len(os.fsencode(name)) > budget.MAX_NAME:
        return False
    # On Windows, "a." and "a " are other names of "a".
    parts = name.split("/")
    return not any(
        part.rstrip(". ") != part or not part or _DEVICE.fullmatch(part) for part in parts
    )


@contextlib.contextmanager
def open_zip(file: Path | IO[bytes], *, compressed: bool = False) -> Iterator[zipfile.ZipFile]:
    """Yield an untrusted zip file whose members are unique and, unless `compressed`, fit into it.

    Keras, NumPy and torch write uncompressed members. Read through the yielded object only: it
    keeps the list of members that was checked.
    """
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(open(file, "rb")) if isinstance(file, Path) else file
        limited: Any = _LimitedReads(stream)
        archive = stack.enter_context(zipfile.ZipFile(limited))
        limited.is_limited = False
        _check_members(archive.infolist())
        if not compressed:
            _check_stored(archive.infolist(), stream.seek(0, os.SEEK_END))
        yield archive


def read_member(archive: zipfile.ZipFile, name: str, limit: int = budget.MAX_TEXT) -> bytes:
    """Return the content of a member of at most `limit` bytes."""
    budget.check(archive.getinfo(name).file_size, "bytes", limit, name)
    return archive.read(name)


def _check_members(members: list[zipfile.ZipInfo]) -> None:
    """Check the number of members, and that each has one name, which no other member has."""
    budget.check(len(members), "members", budget.MAX_OBJECTS)
    names = set()
    for member in members:
        # `filename` ends at a zero byte. Python 3.12 replaces it by the "Unicode path" field.
        if member.filename != member.orig_filename:
            rule = f"has a second name, {shown(member.filename)}"
            raise ValueError(f"the member {shown(member.orig_filename)} {rule}")
        if member.filename in names:
            raise ValueError(f"names of members must be unique; {shown(member.filename)} is twice")
        names.add(member.filename)


def _check_stored(members: list[zipfile.ZipInfo], size: int) -> None:
    """Check that the members are uncompressed, and no larger than a file of `size` bytes."""
    for member in members:
        is_encrypted = member.flag_bits & 1
        if member.compress_type != zipfile.ZIP_STORED or is_encrypted:
            rule = "must be stored uncompressed and unencrypted"
            raise ValueError(f"the member {shown(member.filename)} {rule}")
    declared = sum(member.file_size for member in members)
    if declared > size:
        raise ValueError(f"the members overlap: they declare {declared} bytes in a file of {size}")


class _LimitedReads:
    """A file that limits each read: `zipfile` parses the whole list of members when it opens."""

    def __init__(self, file: IO[bytes]) -> None:
        self.is_limited = True
        self.seek = file.seek
        self.tell = file.tell
        self.seekable = file.seekable
        self._read = file.read

    def read(self, size: int = -1) -> bytes:
        if not self.is_limited:
            return self._read(size)
        limit = budget.MAX_HEADER + 1
        data = self._read(limit if size < 0 else min(size, limit))
        budget.check(len(data), "bytes in its list of members", budget.MAX_HEADER)
        return data


def read_npz(file: Path, names: Collection[str] | None = None) -> dict[str, Any]:
    """Return name -> array of a file that `numpy.savez` wrote, or only of some names."""
    with open(file, "rb") as stream:
        try:
            with open_zip(stream) as archive:
                chosen = archive.namelist() if names is None else [f"{name}.npy" for name in names]
                return {name.removesuffix(".npy"): _read_npy(archive, name) for name in chosen}
        except Exception as error:  # NumPy and zipfile raise many types
            raise ValueError(one_line(error)) from error


def _read_npy(archive: zipfile.ZipFile, name: str) -> Any:
    import numpy as np

    content = io.BytesIO(archive.read(name))
    array = np.load(content, allow_pickle=False) if name.endswith(".npy") else None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufU":
        raise ValueError(f"{shown(name)} is not an array of numbers or of text")
    return array


class Dataset(NamedTuple):
    """Shape and dtype of the values of an HDF5 file under one name."""

    shape: tuple[int, ...]
    dtype: str


def read_hdf5(file: Path) -> dict[str, Any]:
    """Return name -> array of all datasets of an HDF5 file."""
    import h5py
    import ml_dtypes
    import numpy as np

    content = read_bytes(file, budget.MAX_FILE)  # what is checked is what is read
    try:
        with h5py.File(io.BytesIO(content), "r") as opened:
            datasets = check_hdf5(opened, len(content), lists_of_strings=True)
            arrays = {name: np.asarray(opened[name][()]) for name in datasets}
    except Exception as error:  # h5py raises many types
        raise invalid(file, "must be a complete HDF5 file", error) from error
    return {
        name: array.view(ml_dtypes.bfloat16) if datasets[name].dtype == _BFLOAT16 else array
        for name, array in arrays.items()
    }


def check_hdf5(opened: Any, size: int, *, lists_of_strings: bool = False) -> dict[str, Dataset]:
    """Check that all datasets are in an HDF5 file, uncompressed and written; return them by name.

    `opened` is an `h5py.File`, and `size` is the size of the file in bytes. Pass
    `lists_of_strings=True` if no attribute is read except "dtype".
    """
    import h5py

    datasets = {}
    declared = 0
    for name, item in _hdf5_objects(opened):
        _check_attributes(name, item, lists_of_strings)
        if not isinstance(item, h5py.Dataset):
            continue
        _check_storage(name, item)
        declared += item.nbytes
        if declared > size:
            raise ValueError(f"the datasets overlap: they declare more than {size} bytes")
        datasets[name] = Dataset(item.shape, _BFLOAT16 if _is_bfloat16(item) else str(item.dtype))
    return datasets


def _hdf5_objects(opened: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and objects of an HDF5 file. A link to another object is an error."""
    import h5py

    unvisited: list[tuple[str, Any]] = [("", opened)]
    count = 1
    while unvisited:
        name, item = unvisited.pop()
        is_group = not isinstance(item, h5py.Dataset)
        count += len(item.attrs)
        if is_group:
            count += len(item)
        budget.check(count, "groups, datasets and attributes", budget.MAX_OBJECTS)
        yield name or "/", item
        if not is_group:
            continue
        budget.check(name.count("/"), "nested groups", budget.MAX_DEPTH)
        for key in item:
            budget.check(len(name) + len(key), "characters of a name", budget.MAX_NAME)
            if not isinstance(item.get(key, getlink=True), h5py.HardLink):
                raise ValueError(f"{shown(name)} has the link {shown(key)} in place of an object")
            unvisited.append((f"{name}/{key}".lstrip("/"), item[key]))


def _check_attributes(name: str, item: Any, lists_of_strings: bool) -> None:
    """Check the attributes of an HDF5 object, without reading them."""
    for attribute_name in item.attrs:  # by name: HDF5 finds an index in linear time
        attribute = item.attrs.get_id(attribute_name)
        # A list of strings of any length can refer to the same bytes many times. h5py 3 writes such
        # lists for the names of layers in tf_model.h5.
        is_list_of_strings = attribute.shape != () and attribute.dtype.hasobject
        if lists_of_strings and attribute_name != "dtype":
            is_list_of_strings = False
        if is_list_of_strings:
            raise ValueError(f"{shown(name)} has a list of strings as an attribute")


def _is_bfloat16(dataset: Any) -> bool:
    """Return True for the two bytes that Keras writes for bfloat16."""
    return bool(dataset.dtype == "V2" and dataset.attrs.get("dtype") == _BFLOAT16)


def _check_storage(name: str, dataset: Any) -> None:
    """Check that a dataset has numbers, which the file stores contiguous and uncompressed."""
    import h5py

    is_number = dataset.dtype.kind in "biuf" and h5py.check_enum_dtype(dataset.dtype) is None
    stored = dataset.id.get_storage_size()
    for is_met, rule in (
        (not dataset.external and not dataset.is_virtual, "must be in the file itself"),
        (not dataset.id.get_create_plist().get_nfilters(), "must be stored uncompressed"),
        (is_number or _is_bfloat16(dataset), f"must hold numbers, received {dataset.dtype}"),
        (
            dataset.nbytes <= stored,
            f"declares {dataset.nbytes} bytes, but the file holds {stored} bytes of it",
        ),
        # Each chunk takes kilobytes when it is read.
        (dataset.chunks is None, "must be contiguous, received chunks"),
    ):
        if not is_met:
            raise ValueError(f"{shown(name)} {rule}")
