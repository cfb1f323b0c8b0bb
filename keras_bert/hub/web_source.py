"""Models in zip archives on the web."""

import hashlib
import pathlib
import re
import urllib.parse

from keras_bert.hub import cache, download, model_archives
from keras_bert.runtime.reading import first_line

_HTTPS = "https://"


def knows(name: str) -> bool:
    """Return True for an address."""
    return name.startswith((_HTTPS, "http://"))


def find(address: str) -> pathlib.Path:
    """Return the content of a zip archive. The cache key is the address."""
    shown = download.public_address(address)
    path = pathlib.PurePosixPath(urllib.parse.unquote(urllib.parse.urlsplit(address).path))
    if not address.startswith(_HTTPS) or path.suffix.lower() != ".zip":
        raise ValueError(
            f"{shown} must be the https address of a .zip. Google's models have names, such as "
            "'base'. Download other models, and pass their folder"
        )
    key = hashlib.sha256(address.encode()).hexdigest()[:32]
    stem = re.sub(r"[^\w.-]", "_", path.stem).lstrip(".") or "archive"
    folder = cache.cache_folder() / "addresses" / key / stem

    def install():
        try:
            return model_archives.install(address, folder, {}, is_flat=False)
        except OSError as error:
            archive = model_archives.path_by_user(folder)
            raise OSError(
                f"{first_line(error)}. Without a network, put the archive at {archive}"
            ) from error

    cache.get(lambda: cache.cached(folder, {}), key, install)
    return model_archives.model_folder(folder, shown)
