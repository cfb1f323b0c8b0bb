"""`list` and `doctor`, which do not import Keras.

`doctor` prints versions, devices and missing packages, also where packages are broken. Each
package is imported in a process of its own, since a broken one can end its process.
"""

import concurrent.futures
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import signal
import subprocess
import sys

from keras_bert.hub import named_source
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.files import cache_folder
from keras_bert.runtime.packages import install_command
from keras_bert.runtime.processes import safe_path
from keras_bert.runtime.processor import instruction_sets
from keras_bert.runtime.terminal import print_line
from keras_bert.version import __version__

_TIMEOUT = 120  # seconds; an accelerator that another process holds can block the import
# Distribution -> its module, and what to print about the module `m` after its version.
_PACKAGES = {
    "keras": ("keras", "'backend', m.backend.backend()"),
    "tensorflow": (
        "tensorflow",
        "*(d.name.removeprefix('/physical_device:') for d in m.config.list_physical_devices())",
    ),
    "tensorflow-text": ("tensorflow_text", ""),
    "jax": ("jax", "*(d.device_kind for d in m.devices())"),
    "torch": ("torch", "*map(m.cuda.get_device_name, range(m.cuda.device_count()))"),
    "numpy": ("numpy", ""),
    "onnxruntime": ("onnxruntime", "*m.get_available_providers()"),
}
# Lines that need Keras -> the module whose function `describe` returns the line.
_FACTS = {
    "attention": "keras_bert.layers.fused_attention",
    "training": "keras_bert.cli.training_facts",
}
# A missing backend is reported with the command that installs it.
_WITH_ADVICE = """
from keras_bert.runtime.packages import advise_on_backend
with advise_on_backend("Keras"):
    import {module} as m
print({details})
"""
_HIDDEN_EXTRAS = ("dev", "docs", "garden")
_REQUIREMENT = re.compile(r"""([\w.-]+)(?:.*\bextra == ["']([\w-]+)["'])?""")


def list_models(args):
    """Print the models that have a name."""
    print_line(named_source.table())


def doctor(args):
    """Print one line per fact. A package that is missing or broken is a line, not an error."""
    _print("keras_bert", f"{__version__}, {os.path.dirname(os.path.dirname(__file__))}")
    _print("python", f"{platform.python_version()}, {platform.platform()}, {sys.executable}")
    with safe_path(), concurrent.futures.ThreadPoolExecutor() as pool:
        facts = pool.map(_fact, _FACTS.values())
        for name, text in zip(_PACKAGES, pool.map(_describe, _PACKAGES.values()), strict=True):
            _print(name, text)
        for name, text in zip(_FACTS, facts, strict=True):
            _print(name, text)
    sets = " ".join(instruction_sets()) or "unknown instruction sets"
    _print("processor", f"{os.cpu_count()} CPUs, {sets}")
    folder = cache_folder()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    _print("cache", f"{folder}, {_size(folder) / 1e9:.1f} GB, {free / 1e9:.1f} GB free")
    for extra, missing in _missing_packages().items():
        name = f"extra {extra}" if extra else "required"
        _print(name, f"needs {', '.join(missing)}: {install_command(extra)}")


def _print(name, value):
    print_line(f"{name:17}  {printable(value)}")


def _describe(package):
    """Return the version and the details of a module, or the error of its import."""
    module, details = package
    if importlib.util.find_spec(module) is None:
        return "not installed"
    version = "getattr(m, '__version__', 'unknown version')"
    return _output_of(_WITH_ADVICE.format(module=module, details=f"{version}, {details}"))


def _fact(module):
    """Return what the function `describe` of a module says, or the error of its import."""
    return _output_of(_WITH_ADVICE.format(module=module, details="m.describe()"))


def _output_of(code):
    """Run a program in a process; return the last line of its output, or the error."""
    # Without the second setting, JAX reserves most of a GPU's memory.
    settings = {"TF_CPP_MIN_LOG_LEVEL": "3", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    try:
        process = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **settings},
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return f"ERROR: the import took more than {_TIMEOUT} seconds"
    output = process.stdout.strip()
    if process.returncode < 0:
        return f"ERROR: the import ended with {signal.Signals(-process.returncode).name}"
    if process.returncode == 0 and output:
        return output.splitlines()[-1]
    lines = process.stderr.strip().splitlines() or [f"exit status {process.returncode}"]
    # TensorFlow's message has general advice after the reason.
    reasons = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    return f"ERROR: {(reasons or lines)[-1][:300]}"


def _size(folder):
    """Return the bytes of the files in a folder that can be read."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def _missing_packages():
    """Return {extra: [missing package]}; "" is the extra of packages that are always needed."""
    try:
        requirements = importlib.metadata.requires("keras3-bert") or []
    except importlib.metadata.PackageNotFoundError:  # a source folder on the path
        return {}
    missing: dict[str, list[str]] = {}
    for match in filter(None, map(_REQUIREMENT.match, requirements)):
        name = match[1]
        extra = match[2] or ""
        if extra in _HIDDEN_EXTRAS:
            continue
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.setdefault(extra, []).append(name)
    return missing
