"""Checks of zip and HDF5 files that declare more bytes than they hold."""

import io
import time
import zipfile

import h5py
import numpy as np
import pytest

from keras_bert.untrusted import containers
from tests.machine import slowness


def zipped(names, content=b"", compression=zipfile.ZIP_STORED):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as archive:
        for name in names:
            archive.writestr(name, content)
    return data


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_has_one_member():
    with pytest.raises(ValueError, match="'a' is twice"), containers.open_zip(zipped("aa")):
        pass


def test_an_npz_file_holds_arrays_only(tmp_path):
    (tmp_path / "a.npz").write_bytes(zipped(["a.txt"], b"text").getvalue())
    with pytest.raises(ValueError, match="'a.txt' is not an array"):
        containers.read_npz(tmp_path / "a.npz")


def add_twice(opened):
    opened["a"] = np.zeros(10**5)
    opened["b"] = opened["a"]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda opened: opened.create_dataset("a", (10**6,), chunks=(10,)),
            "^'a' declares 4000000 bytes, but the file holds 0 bytes of it$",
        ),
        # Each chunk takes kilobytes of memory when it is read.
        (
            lambda opened: opened.create_dataset("a", data=np.zeros(100, "i1"), chunks=(1,)),
            "'a' must be contiguous",
        ),
        (
            lambda opened: opened.create_dataset("a", data=np.zeros(100), compression="gzip"),
            "'a' must be stored uncompressed",
        ),
        (lambda opened: opened.attrs.update({"a": ["long", "list"]}), "'/' has a list of strings"),
        (
            lambda opened: opened.create_dataset("a", (4,), "f4", external=[("secret", 0, 16)]),
            "must be in the file itself",
        ),
        (lambda opened: opened.update({"a": h5py.SoftLink("/b")}), "has the link 'a'"),
        (lambda opened: opened.update({"a": h5py.ExternalLink("b", "/")}), "has the link 'a'"),
        (add_twice, "the datasets overlap"),
    ],
)
def test_hdf5_files(write, message):
    with h5py.File(io.BytesIO(), "w", libver="latest") as opened:
        write(opened)
        start = time.process_time()
        with pytest.raises(ValueError, match=message):
            containers.check_hdf5(opened, 10**6)
        assert time.process_time() - start < 2 * slowness()
