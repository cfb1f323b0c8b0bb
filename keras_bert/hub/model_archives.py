"""Zip archives of models, unpacked into the cache."""

import pathlib

from keras_bert.hub import cache, download
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.files import sha256_of
from keras_bert.untrusted import archives, links


def model_folder(folder: pathlib.Path, shown: object) -> pathlib.Path:
    """Return the topmost folder that holds a model: the folder itself, or one inside it."""
    # Not above: `keras-bert list` and `doctor` also run without NumPy and Keras.
    from keras_bert import checkpoints
    from keras_bert.provenance import MODEL_FILE

    links.check(folder)
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    models = [
        path for path in folders if (path / MODEL_FILE).is_file() or checkpoints.is_checkpoint(path)
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
    first = cache.first_download(folder)
    downloaded = folder.with_name(f".{folder.name}.zip")
    archive = path_by_user(folder) if path_by_user(folder).is_file() else downloaded
    if not archive.is_file() and download.is_offline():
        raise OSError(f"{shown} cannot be downloaded because HF_HUB_OFFLINE is set")
    download.fetch(address, archive, sha256=first.get("archive"))

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
        cache.remove_empty_folders(folder.parent)
        raise
    # After an OSError, such as a full disk, the archive is kept for the next call.
    downloaded.unlink(missing_ok=True)
    return folder
