"""Set the address of the repository: READMEs, setup.cfg, CITATION.cff and notebooks.

    python docs/repository_address.py https://github.com/NAME/keras_bert

Without an address, the links are relative, which PyPI cannot follow. Run it again if the repository
moves.
"""

import argparse
import configparser
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
_LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)]+\))")
_PICTURE = re.compile(r'((?:src|srcset)=")(?!https?:)')
_CLONE = re.compile(r"git clone <[^>]+> && cd <[^>]+>")


def address(root=ROOT):
    """Return the address of the repository, or `None` if it is not set."""
    setup = configparser.ConfigParser()
    setup.read(root / "setup.cfg", encoding="utf-8")
    urls = setup.get("metadata", "project_urls", fallback="")
    source = re.search(r"^Source = (.+)$", urls, re.MULTILINE)
    return source and source[1]


def colab_address(notebook, repository):
    """Return the address that opens a notebook, a path in the repository, in Colab."""
    return (
        repository.replace("https://github.com", "https://colab.research.google.com/github")
        + f"/blob/main/{notebook}"
    )


def set_address(new, root=ROOT):
    """Write the address into the files of a clone."""
    names = re.fullmatch(r"https://github\.com/([\w.-]+)/([\w.-]+?)(?:\.git)?/?", new)
    if not names:
        raise SystemExit(f"Expected https://github.com/NAME/REPOSITORY; received {new}")
    owner, name = names.groups()
    new = f"https://github.com/{owner}/{name}"
    old = address(root)
    for path in (root / "README.md", root / "README.ko.md"):
        text = path.read_text(encoding="utf-8")
        text = _moved(text, old, new) if old else _with_absolute_links(text, new)
        path.write_text(text, encoding="utf-8")
    citation = root / "CITATION.cff"
    text = re.sub(r"^repository-code: .*\n", "", citation.read_text(encoding="utf-8"), flags=re.M)
    text = re.sub(r"^(license: .*\n)", rf"\1repository-code: {new}\n", text, flags=re.M)
    citation.write_text(text, encoding="utf-8")
    setup = root / "setup.cfg"
    text = re.sub(
        r"^project_urls =\n(    .*\n)+", "", setup.read_text(encoding="utf-8"), flags=re.M
    )
    urls = (
        f"project_urls =\n    Source = {new}\n    Documentation = https://{owner}.github.io/{name}/\n"
        f"    Changelog = {new}/blob/main/CHANGELOG.md\n    Issues = {new}/issues\n"
    )
    setup.write_text(re.sub(r"^(license = .*\n)", rf"{urls}\1", text, flags=re.M), encoding="utf-8")


def _with_absolute_links(text, new):
    """Return a README with absolute links, the clone command and a badge of the tests."""
    raw = _raw_address(new)
    text = _LINK.sub(rf"\1{new}/blob/main/\2", text)
    text = _PICTURE.sub(rf"\1{raw}/", text)
    text = _CLONE.sub(f"git clone {new} && cd {new.rpartition('/')[2]}", text)
    workflow = f"{new}/actions/workflows/test.yml"
    badge = f"[![tests]({workflow}/badge.svg)]({workflow})"
    title, languages = text.split("\n\n", maxsplit=2)[:2]
    return text.replace(f"{title}\n\n{languages}", f"{title}\n\n{badge} {languages}", 1)


def _moved(text, old, new):
    """Return a README with the new address in the place of the old one."""
    text = text.replace(f"git clone {old} && cd {old.rpartition('/')[2]}",
                        f"git clone {new} && cd {new.rpartition('/')[2]}")  # fmt: skip
    return text.replace(old, new).replace(_raw_address(old), _raw_address(new))


def _raw_address(repository):
    """Return the address of the files themselves, for pictures."""
    host = "https://raw.githubusercontent.com"
    return repository.replace("https://github.com", host) + "/main"


if __name__ == "__main__":
    import notebooks

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", help="https://github.com/NAME/REPOSITORY")
    set_address(parser.parse_args().address)
    notebooks.write()
