"""Models in local folders and files, and in zip archives, which are unpacked into the cache."""

import hashlib
import pathlib
import re
import urllib.parse

from keras_bert.hub import cache, download
from keras_bert.hub.registry import ALIASES, MODELS
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.files import make_cache, sha256_of
from keras_bert.runtime.reading import first_line
from keras_bert.untrusted import archives, links

# A folder with such a file may be a model, in any format.
_MODEL_SUFFIXES = (".json", ".keras", ".safetensors", ".bin", ".index", ".pb")


def is_local(name: str) -> bool:
    """Return True for a folder, a `.keras` file or a zip archive.

    A known model name takes precedence over a folder of that name, unless the folder is a model.
    """
    path = pathlib.Path(name).expanduser()
    if not (path.is_dir() or path.is_file()):
        return False
    if name in MODELS or name in ALIASES:
        if path.is_dir() and any(file.suffix in _MODEL_SUFFIXES for file in path.iterdir()):
            rule = "is both a known name and a model's folder here"
            raise ValueError(f"{name!r} {rule}; write ./{name} for the folder, or rename it")
        return False
    if path.is_file() and path.suffix.lower() not in (".keras", ".zip"):
        from keras_bert.checkpoints import other_models  # it imports NumPy

        other_models.check_file(path)
        rule = "must be a folder or a .keras file, or a .zip of a folder"
        raise ValueError(f"{path} {rule}. Unpack other archives, and pass the folder")
    return True


def find_local(name: str) -> pathlib.Path:
    """Return the folder or the `.keras` file. A zip archive is unpacked into the cache once."""
    path = pathlib.Path(name).expanduser()
    if path.is_dir() or path.suffix == ".keras":
        return path
    key = sha256_of(path)[:32]
    stem = path.stem.lstrip(".") or "archive"  # the stem of "...zip" is ".."
    folder = cache.cache_folder() / "archives" / key / stem

    def fill(target):
        archives.unpack(path, target / stem)
        return target / stem

    cache.get(
        lambda: cache.cached(folder, {}),
        f"archive-{key}",
        lambda: cache.install(fill, folder, path, {}),
    )
    return model_folder(folder, path)


def find_on_web(address: str) -> pathlib.Path:
    """Return the content of a zip archive. The cache key is the address."""
    shown = download.public_address(address)
    path = pathlib.PurePosixPath(urllib.parse.unquote(urllib.parse.urlsplit(address).path))
    if not address.startswith("https:") or path.suffix.lower() != ".zip":
        advice = "Google's models have names, such as 'base'. Unpack others, and pass the folder"
        raise ValueError(f"{shown} must be the https address of a .zip. {advice}")
    key = hashlib.sha256(address.encode()).hexdigest()[:32]
    stem = re.sub(r"[^\w.-]", "_", path.stem).lstrip(".") or "archive"
    folder = cache.cache_folder() / "addresses" / key / stem
    cache.get(
        lambda: cache.cached(folder, {}), key, lambda: install(address, folder, {}, is_flat=False)
    )
    return model_folder(folder, shown)


def model_folder(folder: pathlib.Path, shown: object) -> pathlib.Path:
    """Return the topmost folder that holds a model: the folder itself, or one inside it."""
    # Not above: `keras-bert list` and `doctor` also run without NumPy and Keras.
    from keras_bert.checkpoints import detection
    from keras_bert.provenance import MODEL_FILE

    links.check(folder)
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    models = [
        path for path in folders if (path / MODEL_FILE).is_file() or detection.formats_in(path)
    ]
    depth = min((len(path.parts) for path in models), default=0)
    topmost = sorted(path for path in models if len(path.parts) == depth)
    if len(topmost) > 1:
        names = ", ".join(path.relative_to(folder).as_posix() for path in topmost)
        raise ValueError(f"{shown} must hold one model; received {printable(names, 200)}")
    return topmost[0] if topmost else folder  # the reader reports which files it expects


def path_by_user(folder: pathlib.Path) -> pathlib.Path:
    """Return the path at which a user can put the archive of a folder of the cache."""
    return folder.with_name(f"{folder.name}.zip")


def install(
    address: str, folder: pathlib.Path, sha256: dict[str, str], *, is_flat: bool
) -> pathlib.Path:
    """Download an archive and unpack it into a folder of the cache. The caller holds its lock.

    If `is_flat`, the folder becomes the model's folder inside the archive.
    """
    shown = download.public_address(address)
    make_cache(folder.parent)
    first = cache.first_download(folder)
    downloaded = folder.with_name(f".{folder.name}.zip")
    archive = path_by_user(folder) if path_by_user(folder).is_file() else downloaded
    try:
        if not archive.is_file() and download.is_offline():
            raise OSError(f"{shown} cannot be downloaded because HF_HUB_OFFLINE is set")
        download.fetch(address, archive, sha256=first.get("archive"))
    except OSError as error:
        if is_flat:  # a model with a name, whose error names all places for its files
            raise
        remedy = f"Without a network, put the archive at {path_by_user(folder)}"
        raise OSError(f"{first_line(error)}. {remedy}") from error

    def fill(target):
        unpacked = target / folder.name
        archives.unpack(archive, unpacked)
        return model_folder(unpacked, shown) if is_flat else unpacked

    try:
        cache.install(
            fill,
            folder,
            shown,
            sha256,
            record=not cache.has_weights(sha256),
            archive=first.get("archive") or sha256_of(archive),
        )
    except ValueError:
        downloaded.unlink(missing_ok=True)
        raise
    # After an OSError, such as a full disk, the archive is kept for the next call.
    downloaded.unlink(missing_ok=True)
    return folder
