#!/usr/bin/env python3
"""Fails when an #include goes against the arrows between KPage's folders.

    base <- layout <- plan <- {cpu, kernels} <- api <- {bindings, tools}
    oracle reads base and layout only, so that a bug in the plan cannot cancel itself

Usage: check_layers.py [ROOT]   prints one line a violation; exit code 1 if there is any
"""

import pathlib
import re
import sys

# What each folder may include, besides itself.
ALLOWED = {
    "base": set(),
    "layout": {"base"},
    "plan": {"base", "layout"},
    "oracle": {"base", "layout"},
    "cpu": {"base", "layout", "plan"},
    "kernels": {"base", "layout", "plan"},
    "api": {"base", "layout", "plan", "oracle", "cpu", "kernels"},
    "bindings": {"base", "layout", "plan", "api"},
    "tools": {"base", "layout", "plan", "oracle", "api"},
}

# The layer of each public header include/kpage/<name>; any other belongs to api.
PUBLIC = {
    "status.h": "base",
    "types.h": "base",
    "token_args.h": "base",
    "select_args.h": "base",
    "tensor.h": "base",
    "export.h": "base",
    "version.h": "base",
    "layout.h": "layout",
    "geometry.h": "layout",
    "plan.h": "plan",
    "plan_shape.h": "plan",
    "attention_args.h": "plan",
}

# Third-party headers by prefix, and the only folders that may include them.
THIRD_PARTY = {
    "torch/": {"bindings"},
    "ATen/": set(),
    "c10/": set(),
    "nlohmann/": {"tools"},
    "CLI/": {"tools"},
    "Eigen/": {"cpu", "oracle"},
}

SUFFIXES = {".h", ".cpp", ".cuh", ".cu"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def layer_of_public(name):
    return PUBLIC.get(name, "api")


def target_layer(root, path):
    """The layer that an include names; None for the standard library and other packages."""
    first, _, rest = path.partition("/")
    if first == "kpage" and rest:
        return layer_of_public(rest)
    if rest and (root / "src" / first).is_dir():
        return first
    return None


def check_file(root, file, layer, public):
    def shown(line, message):
        return f"{file.relative_to(root)}:{line}: {message}"

    text = BLOCK_COMMENT.sub(lambda m: "\n" * m.group().count("\n"), file.read_text())
    for match in INCLUDE.finditer(text):
        bracket, path = match.groups()
        line = text.count("\n", 0, match.start()) + 1
        if ".." in path.split("/"):
            yield shown(line, f"'{path}' climbs out of its folder; name it from src/")
            continue
        for prefix, folders in THIRD_PARTY.items():
            if path.startswith(prefix) and (public or layer not in folders):
                yield shown(line, f"'{path}' may not be included by {layer}")
        target = target_layer(root, path)
        if public:
            if bracket == '"' and not path.startswith("kpage/"):
                yield shown(line, f"public header includes '{path}', which is not installed")
                continue
            if path.startswith("cuda"):
                yield shown(line, f"public header includes '{path}'; users need no CUDA toolkit")
        if target is not None and target != layer and target not in ALLOWED[layer]:
            yield shown(line, f"{layer} may not include '{path}' of {target}")


def sources(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in SUFFIXES) if folder.is_dir() else []


def check(root):
    root = pathlib.Path(root)
    for folder in sorted(p for p in (root / "src").iterdir() if p.is_dir()):
        files = sources(folder)
        if folder.name not in ALLOWED:
            yield f"src/{folder.name}: unknown folder; give it a place among the layers"
            continue
        for file in files:
            yield from check_file(root, file, folder.name, public=False)
    for layer in ("bindings", "tools"):
        for file in sources(root / layer):
            yield from check_file(root, file, layer, public=False)
    for file in sources(root / "include" / "kpage"):
        yield from check_file(root, file, layer_of_public(file.name), public=True)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    violations = list(check(root))
    print("\n".join(violations) or "layers: every include goes along the arrows")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
