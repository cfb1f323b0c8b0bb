"""Checks of zip and HDF5 files that declare more bytes than they hold."""

import io
import time
import zipfile

import h5py
import numpy as np
import pytest

from keras_bert.untrusted import containers


def test_a_compressed_zip_member_is_an_error():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(1000))
    message = "^the member 'zeros' must be stored once, uncompressed"
    with pytest.raises(ValueError, match=message):
        containers.check_zip(data)


def test_an_unwritten_dataset_is_an_error():
    with h5py.File(io.BytesIO(), "w") as opened:
        opened.create_dataset("a", (10**6,), chunks=(10,))
        message = "^'a' declares 4000000 bytes, but the file holds 0 bytes of it$"
        with pytest.raises(ValueError, match=message):
            containers.check_hdf5(opened, 1000)


def test_many_members_are_an_error():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for number in range(10_001):
            archive.writestr(str(number), b"")
    with pytest.raises(ValueError, match="10001 members, at most 10000"):
        containers.check_zip(data)


def test_long_names_are_an_error():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for number in range(100):
            archive.writestr(f"{number}".zfill(60_000), b"")
    with pytest.raises(ValueError, match="a list of members of over"):
        containers.check_zip(data)


def test_many_groups_are_an_error():
    with h5py.File(io.BytesIO(), "w", libver="latest") as opened:
        for number in range(20_001):
            opened.create_group(str(number))
        with pytest.raises(ValueError, match="20000"):
            containers.check_hdf5(opened, 10**9)


def test_deep_groups_are_an_error():
    """HDF5 visits nested groups in quadratic time."""
    with h5py.File(io.BytesIO(), "w", libver="latest") as opened:
        group = opened
        for _ in range(5000):
            group = group.create_group("a")
        start = time.perf_counter()
        with pytest.raises(ValueError, match="in over 32 groups"):
            containers.check_hdf5(opened, 10**9)
        assert time.perf_counter() - start < 2


def test_chunks_are_an_error():
    """Each chunk takes kilobytes of memory when it is read."""
    with h5py.File(io.BytesIO(), "w") as opened:
        opened.create_dataset("a", data=np.zeros(100, "i1"), chunks=(1,))
        with pytest.raises(ValueError, match="'a' must be contiguous"):
            containers.check_hdf5(opened, 10**6)


def test_lists_of_strings_as_attributes_are_an_error():
    with h5py.File(io.BytesIO(), "w") as opened:
        dataset = opened.create_dataset("a", data=np.zeros(2))
        dataset.attrs["dtype"] = "float32"
        containers.check_hdf5(opened, 10**6)
        dataset.attrs["names"] = ["long", "list"]
        with pytest.raises(ValueError, match="'a' has a list of strings"):
            containers.check_hdf5(opened, 10**6)


def test_many_attributes_are_an_error():
    with h5py.File(io.BytesIO(), "w") as opened:
        for number in range(65):
            opened.attrs[str(number)] = 1
        with pytest.raises(ValueError, match="'/' has 65 attributes"):
            containers.check_hdf5(opened, 10**6)
