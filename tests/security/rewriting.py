"""Rewrite zip archives and `.keras` files with changed members."""

import io
import json
import zipfile

import h5py

CONFIG, WEIGHTS = "config.json", "model.weights.h5"


def rewrite_zip(file, change, compression=zipfile.ZIP_STORED):
    """Call `change` with a dict of the members' contents, and write the result."""
    with zipfile.ZipFile(file) as archive:
        members = {item.filename: archive.read(item) for item in archive.infolist()}
    change(members)
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def edit_config(file, change):
    """Call `change` with the config of a `.keras` file, and write the result."""

    def edit(members):
        config = json.loads(members[CONFIG])
        change(config)
        members[CONFIG] = json.dumps(config).encode()

    rewrite_zip(file, edit)


def edit_weights(file, change):
    """Call `change` with the open HDF5 file in a `.keras` file, and write the result."""

    def edit(members):
        data = io.BytesIO(members[WEIGHTS])
        with h5py.File(data, "r+") as opened:
            change(opened)
        members[WEIGHTS] = data.getvalue()

    rewrite_zip(file, edit)


def layer_of(config, class_name):
    """Return the first layer of a class in the config of a functional model."""
    return next(layer for layer in config["config"]["layers"] if layer["class_name"] == class_name)
