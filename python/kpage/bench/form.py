"""The form of a file of results, checked before anything relies on it."""

import json
import numbers
import pathlib


class BadFile(Exception):
    """A file that is not what it should be: its name, what was expected and what came."""


_FORM = {
    "commit": str,
    "command": str,
    "device": str,
    "peers": dict,
    "rows": list,
}
# What a run that goes on needs besides.
_OF_A_RUN = {
    "r_dense": dict,
    "r_dense_rested": dict,
    "figures": list,
    "failures": list,
    "finished": list,
}
_NAMES = {str: "a string", dict: "an object", list: "a list"}
# A row that has the first has the others.
_TOGETHER = {
    "kpage_ms": ("time_ms", "rested_ms", "exact", "error"),
    "fraction_of_ideal": ("time_ms", "useful_tflops", "error"),
    "backward_ms": ("forward_ms", "plan_forward_ms", "plan_backward_ms", "plan_bytes", "qkv_bytes"),
    "of_first": ("time_ms", "of_first_rested", "executed_pairs", "executed_tflops", "useful_pairs"),
    "of_attention": ("time_ms",),
    "runs": ("forward_bits_equal", "gradient_bits_equal", "default_differs_by", "cost"),
    "input_scale": ("dtype",),
    "joules": ("time_ms", "watts", "useful_pairs_per_joule"),
}


def read_json(path):
    """BadFile where it cannot be read, or is not JSON."""
    try:
        return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadFile(f"{path}: expected a file that can be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path}: expected JSON: {error}") from error


def read_results(path, of_a_run=False):
    """A file as written by Results or by `kpage bench`; of_a_run: one that a run can go on with."""
    data = read_json(path)
    wrong = _wrong(data, {**_FORM, **_OF_A_RUN} if of_a_run else _FORM)
    if wrong:
        raise BadFile(f"{path}: expected a file of results: {wrong}")
    data["r_dense"] = data.get("r_dense") or {}
    return data


def read_notes(path):
    """{"<layout>, <pass>": text}."""
    notes = read_json(path)
    if not isinstance(notes, dict) or not all(isinstance(x, str) for x in notes.values()):
        raise BadFile(f'{path}: expected an object of strings, {{"<layout>, <pass>": why}}')
    return notes


def _wrong(data, form):
    """What is wrong with it; None: nothing."""
    if not isinstance(data, dict):
        return "it has no object"
    for key, kind in form.items():
        if not isinstance(data.get(key), kind):
            return f"{key} is {'not ' + _NAMES[kind] if key in data else 'missing'}"
    for key in ("r_dense", "r_dense_rested"):
        if data.get(key) and not _has(data[key], dict, numbers.Real):
            return f"{key} is not an object of numbers"
    if not _has(data["peers"], dict, str):
        return "peers is not an object of strings"
    for key in ("failures", "inapplicable"):
        for entry in _list(data.get(key, [])):
            if not _has(entry, dict, str) or not entry.keys() >= {"where", "error"}:
                return f"{key} has an entry without `where` and `error`"
    if not all(isinstance(job, str) for job in _list(data.get("finished", []))):
        return "finished is not a list of strings"
    for key in ("rows", "figures"):
        for number, row in enumerate(_list(data.get(key, []))):
            wrong = _wrong_in_row(row)
            if wrong:
                return f"{key}[{number}]: {wrong}"
    return None


def _wrong_in_row(row):
    if not isinstance(row, dict):
        return "not an object"
    names = {"kernel": "kpage", **row}
    for key in ("layout", "pass", "kernel"):
        if not isinstance(names.get(key), str):
            return f"{key} is missing, or not a string"
    for key, value in row.items():
        if key.endswith("_ms") and isinstance(value, (str, dict)):
            return f"{key} is not a number"
    for key, others in _TOGETHER.items():
        for other in others if row.get(key) is not None else ():
            if row.get(other) is None:
                return f"{other} is missing beside {key}"
    return None


def _list(value):
    return value if isinstance(value, list) else [value]


def _has(value, kind, of):
    return isinstance(value, kind) and all(isinstance(x, of) for x in value.values())
