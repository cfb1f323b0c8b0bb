"""Makes core_ops.txt: the ops that TensorFlow 2.16 to 2.21 all have; and tries our exports there.

Of each version the wheel is fetched and its C library taken out; nothing is installed. The library
lists its own registry of ops, with nothing else loaded, and answers from each head's SavedModel
without Python, beside the TensorFlow that is installed here.

    python -m tests.golden.make_core_ops FOLDER

FOLDER keeps the libraries, 700 MB a version. Prints the largest difference of each head and
version.
"""

import argparse
import datetime
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2

from tests import served

VERSIONS = ("2.16.2", "2.17.1", "2.18.1", "2.19.1", "2.20.0", "2.21.0")
LIBRARIES = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")


def libraries(folder, version):
    """The folder of a version's C library."""
    target = folder / version
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=folder) as wheels:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--dest", wheels, "--only-binary", ":all:", "--python-version", "3.12"]
            command += [
                "--platform",
                "manylinux_2_17_x86_64",
                "--platform",
                "manylinux_2_27_x86_64",
            ]
            subprocess.run([*command, f"tensorflow-cpu=={version}"], check=True)
            [wheel] = pathlib.Path(wheels).glob("*.whl")
            taken = pathlib.Path(wheels, version)
            taken.mkdir()
            with zipfile.ZipFile(wheel) as archive:
                for name in LIBRARIES:
                    (taken / name).write_bytes(archive.read(f"tensorflow/{name}"))
            taken.rename(target)
    return target


def ops(folder):
    """Names of the ops in a library's registry."""
    listed = subprocess.run(
        [sys.executable, "-m", "tests.c_api", folder], capture_output=True, check=True
    ).stdout
    return {op.name for op in op_def_pb2.OpList.FromString(listed).op}


def difference(found, expected):
    """The largest between numbers; texts must be equal."""
    largest = 0.0
    for name, value in expected.items():
        value = value.numpy()
        if value.dtype == object:
            texts = np.vectorize(bytes.decode, otypes=[object])(value).tolist()
            assert found[name] == texts, name
        else:
            apart = np.abs(value.astype(np.float64) - np.array(found[name]))
            largest = max(largest, float(apart.max()))
    return largest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    common = set.intersection(*(ops(libraries(folder, version)) for version in VERSIONS))
    today = datetime.date.today().isoformat()
    versions = ", ".join(VERSIONS)
    served.CORE_OPS.write_text(
        f"# Made by make_core_ops.py on {today}: the ops that TensorFlow {versions} have.\n"
        + "".join(f"{name}\n" for name in sorted(common))
    )
    with tempfile.TemporaryDirectory() as exported:
        for name in served.HEADS:
            version = served.head(name, pathlib.Path(exported, name)) / "1"
            request = served.REQUESTS.get(name, {"text": served.TEXTS})
            signature = tf.saved_model.load(str(version)).signatures["serving_default"]
            expected = signature(**{key: tf.constant(value) for key, value in request.items()})
            for each in VERSIONS:
                found = served.by_c_api(libraries(folder, each), version, request)
                assert found["version"] == each and found["foreign"] == []
                print(f"{name:10} {each}  {difference(found, expected):.1e}", flush=True)


if __name__ == "__main__":
    main()
