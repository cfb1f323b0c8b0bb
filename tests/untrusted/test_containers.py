"""Checks of zip and HDF5 files that declare more bytes than they hold."""

import io
import zipfile

import h5py
import pytest

from keras_bert.untrusted import containers


def test_a_compressed_zip_member_is_an_error():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(1000))
    message = "^the member 'zeros' is compressed; it must be stored uncompressed$"
    with pytest.raises(ValueError, match=message):
        containers.check_zip(data)


def test_an_unwritten_dataset_is_an_error():
    with h5py.File(io.BytesIO(), "w") as opened:
        opened.create_dataset("a", (10**6,), chunks=(10,))
        message = "^'a' declares 4000000 bytes, but the file holds 0 bytes of it$"
        with pytest.raises(ValueError, match=message):
            containers.check_hdf5(opened, 1000)
