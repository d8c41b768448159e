"""The file of results (one a run), written anew after each row."""

import json
import os
import sys
import time

from kpage.bench.commit import commit
from kpage.bench.form import BadFile, read_results
from kpage.bench.markup import digits

# Fractions of ideal that the project asks for: forward floor and goal, forward+backward floor and
# goal. Ideal: useful pairs at the rate of dense attention in the same run, both sustained.
TARGETS = {
    "full-512": (0.98, 1.08, 1.08, 1.20),
    "full-1024": (0.90, 1.05, 0.95, 1.10),
    "full-1536": (0.90, 1.05, 0.95, 1.10),
    "full-3072": (0.90, 1.05, 0.95, 1.10),
    "padded-5s": (0.86, 0.95, 0.92, 1.05),
    "padded-10s": (0.82, 0.95, 0.80, 0.95),
    "padded-15s": (0.82, 0.95, 0.80, 0.95),
    "padded-30s": (0.82, 0.95, 0.80, 0.95),
    "vsa-288-720p": (0.92, 1.02, 1.00, 1.12),
    "vsa-288-720p-40-heads": (0.92, 1.02, 1.00, 1.12),
    "ssta-720p-121f": (0.88, 1.00, 0.95, 1.10),
    "ssta-720p-241f": (0.88, 1.00, 0.95, 1.10),
    "sta-30x45x80": (0.88, 1.00, 0.95, 1.10),
    "vsa-488-480p": (0.88, 1.00, 0.95, 1.10),
    "vsa-488-720p": (0.88, 1.00, 0.95, 1.10),
    "vsa-444-480p": (0.58, 0.68, 0.66, 0.80),
    "vsa-444-720p": (0.56, 0.68, 0.56, 0.72),
    "svg2-720p-300-1000": (0.65, 0.78, 0.60, 0.75),
    "svg2-720p-100-500": (0.76, 0.90, 0.72, 0.90),
    "svg2-480p-300-1000": (0.52, 0.62, 0.45, 0.56),
}
OWN_BESIDE = "kpage beside peers"  # KPage's kernel name in rows of peers' rounds
FLOPS = {"forward": 4.0, "backward": 10.0, "forward+backward": 14.0}  # a pair and column


class Results:
    """The file. Rows belong to jobs: those of a finished job are kept when the same commit is run
    again on the same device, others are dropped. Any other file that is there raises BadFile."""

    def __init__(self, path, device, peers):
        self.path = path
        self.start = time.monotonic()
        self.job = ""
        self.data = {
            "commit": commit(),
            "command": _command(),
            "device": device,
            "clock": "sustained",
            "r_dense": {},
            "r_dense_rested": {},
            "peers": peers,
            "rows": [],
            "figures": [],
            "failures": [],
            "inapplicable": [],
            "finished": [],
        }
        self._resume()

    def _resume(self):
        if not self.path or not os.path.lexists(self.path):
            return
        if not os.path.isfile(self.path):
            raise BadFile(f"{self.path}: expected a file of results, or a new name")
        before = read_results(self.path, of_a_run=True)
        for key in ("commit", "device"):
            # Unknown commits may be two.
            if not self.data[key] or before[key] != self.data[key]:
                raise BadFile(
                    f"{self.path} holds results of {key} {before[key] or '(unknown)'}, this run is of "
                    f"{self.data[key] or '(unknown)'}: give another name, or move the file away"
                )
        finished = before["finished"]
        for key in ("rows", "figures", "failures", "inapplicable"):
            self.data[key] = [x for x in before.get(key, ()) if x.get("job") in finished]
        for key in ("peers", "r_dense", "r_dense_rested"):
            self.data[key].update(before[key])
        self.data["finished"] = finished
        self.data["command"] = f"{before['command']}; {self.data['command']}"

    def has(self, job):
        return job in self.data["finished"]

    def begin(self, job):
        self.job = job

    def finish(self, job):
        self.data["finished"].append(job)
        self.save()

    def add(self, **row):
        """A timed row, the only one of its layout, pass and kernel."""
        flops = FLOPS.get(row["pass"], 0) * row["useful_pairs"] * row["head_dim"]
        if flops and row.get("time_ms"):
            row["useful_tflops"] = flops / row["time_ms"] / 1e9
        ideal = row.pop("dense_tflops", None)
        if ideal:
            row["fraction_of_ideal"] = row["useful_tflops"] / ideal
        self._keep("rows", row)

    def note(self, **row):
        """Figures that have no time."""
        self._keep("figures", row)

    def _keep(self, part, row):
        if self.job:
            row["job"] = self.job
        self.data[part].append(row)
        print(_line(row), f"[{time.monotonic() - self.start:.0f} s]", flush=True)
        self.save()

    def fail(self, where, error):
        self._say("failures", where, f"{type(error).__name__}: {str(error).strip()[:300]}")

    def leave_out(self, where, reason):
        """What cannot be asked for there, which is no failure."""
        self._say("inapplicable", where, str(reason))

    def _say(self, part, where, text):
        entry = {"where": where, "error": text}
        if self.job:
            entry["job"] = self.job
        self.data[part].append(entry)
        print(f"{where}: {text}", flush=True)
        self.save()

    def save(self):
        if not self.path:
            return
        part = f"{self.path}.part"  # so that a run that is killed leaves a whole file
        with open(part, "w", encoding="utf-8") as file:
            json.dump(_rounded(self.data), file, indent=1)
            file.write("\n")
        os.replace(part, self.path)


def _rounded(x):
    if isinstance(x, float):
        return float(f"{x:.5g}")
    if isinstance(x, dict):
        return {key: _rounded(value) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [_rounded(value) for value in x]
    return x


def _command():
    """As it was given, files without their folders."""
    words = (os.path.basename(word) if os.sep in word else word for word in sys.argv[1:])
    return " ".join(["python -m kpage.bench", *words])


_SHOWN = {
    "time_ms": ".3f",
    "fraction_of_ideal": ".3f",
    "kpage_ms": ".3f",
    "of_first": ".3f",
    "efficiency": ".3f",
    "joules": ".3g",
    "error": ".1e",
    "of_flash_gradients": ".2f",
    "first_call_s": ".1f",
    "peer_plan_ms": ".2f",
}


def _line(row):
    if row["pass"] == "plan":
        parts = [f"{key} {row[key]:.3f}" for key in ("plan_forward_ms", "plan_backward_ms")]
        return f"{row['layout']:22} plan {' '.join(parts)} bytes {row['plan_bytes']}"
    parts = [f"{row['layout']:22} {row['pass']:17} {row['kernel']:22}"]
    for key, form in _SHOWN.items():
        if row.get(key) is not None:
            parts.append(f"{key} {row[key]:{form}}")
    if row.get("useful_tflops") is not None:
        parts.insert(2, f"useful_tflops {digits(row['useful_tflops'], 0)}")
    return ", ".join(parts)
