"""Which KPage is measured."""

import hashlib
import importlib.metadata
import os
import pathlib
import subprocess

_HERE = pathlib.Path(__file__).resolve()  # a build tree has links to the sources
_IN_REPOSITORY = pathlib.Path("python/kpage/bench") / _HERE.name
# What decides what is measured; results and documents may change while a run goes on.
_SOURCES = ("CMakeLists.txt", "bindings", "cmake", "include", "python", "src")


def commit():
    """KPAGE_COMMIT of the environment; else the commit of KPage's repository, where this file lies in
    it; else the version that is installed; "" where none is known."""
    return os.environ.get("KPAGE_COMMIT") or of_repository(_HERE) or installed(_HERE)


def of_repository(file):
    """The short hash, with "-dirty-<digest of the changes>" where sources have changes."""
    root = _git(file.parent, "rev-parse", "--show-toplevel")
    if not root or pathlib.Path(root).resolve() / _IN_REPOSITORY != file:
        return ""
    head = _git(root, "rev-parse", "--short", "HEAD")
    changed = _git(root, "status", "--porcelain", "--", *_SOURCES)
    if not head or changed is None:
        return ""
    if not changed:
        return head
    changed += _git(root, "diff", "--binary", "HEAD", "--", *_SOURCES) or ""
    digest = hashlib.sha256(changed.encode())
    others = _git(root, "ls-files", "-z", "--others", "--exclude-standard", "--", *_SOURCES) or ""
    for name in filter(None, others.split("\0")):
        if (pathlib.Path(root) / name).is_file():
            digest.update((pathlib.Path(root) / name).read_bytes())
    return f"{head}-dirty-{digest.hexdigest()[:8]}"


def installed(file):
    """The version of the distribution that this file is of."""
    try:
        found = importlib.metadata.distribution("kpage")
        ours = pathlib.Path(found.locate_file("kpage/bench")).resolve() == file.parent
    except importlib.metadata.PackageNotFoundError:
        return ""
    return found.version if ours else ""


def _git(folder, *words):
    """What git says there; None where it fails. A hook's GIT_DIR is of another repository."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        said = subprocess.run(
            ["git", "-C", str(folder), *words],
            env={**env, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return said.decode(errors="replace").strip()


if __name__ == "__main__":  # for scripts that measure a copy of the package
    print(commit())
