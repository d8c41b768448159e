"""Runs jobs one after the other: each fails alone, and is not run again where it is in the file."""

import gc
import time

import torch

from kpage.bench.own import Dense
from kpage.bench.peers import Unsupported
from kpage.bench.results import Results
from kpage.bench.timing import measure, timer_of

_BAR = 20  # characters of the bar of finished jobs


class Bench:
    """What jobs share: the device, its timer, the file of results and dense attention."""

    def __init__(self, path, device, seconds, rounds, peers=None):
        self.device = torch.device(device)
        self.timer = timer_of(self.device)
        self.rounds = rounds
        self.peer_names = peers  # parts of names; None: all
        self.end = time.monotonic() + seconds
        name = torch.cuda.get_device_name() if self.device.type == "cuda" else "CPU"
        self.results = Results(path, name, {})
        self.results.data["torch"] = torch.__version__
        self._dense = None
        self._told = {"ran": [], "in the file before": [], "not reached": []}  # jobs

    def left(self):
        return self.end - time.monotonic()

    @property
    def dense(self):
        if self._dense is None:
            self._dense = Dense(self.device)
            self._dense.forward()
            self._dense.forward_backward()  # so that no first call is timed
        return self._dense

    def dense_rate(self, name, times):
        """The last case's rate stands for the run; each row's fraction uses its own."""
        data, key = self.results.data, name.replace("+", "_")
        data["r_dense"][key] = self.dense.tflops(name, times.sustained)
        data["r_dense_rested"][key] = self.dense.tflops(name, times.rested)

    def measure(self, functions):
        return measure(functions, self.timer, self.rounds)

    def run(self, jobs):
        """jobs: {(kind, layout): function of this and the layout}."""
        for number, ((kind, name), function) in enumerate(jobs.items(), 1):
            job = f"{kind} {name}"
            bar = "#" * round(_BAR * (number - 1) / len(jobs))
            where = f"[{bar:-<{_BAR}}] {number}/{len(jobs)}, {self.left():.0f} s left: {job}"
            if self.results.has(job):
                print(f"{where}: in the file", flush=True)
                self._told["in the file before"].append(job)
                continue
            print(where, flush=True)
            self.results.begin(job)
            if self.left() < 5:
                self.results.fail(name, TimeoutError("not reached within --seconds"))
                self._told["not reached"].append(job)
                continue
            self._told["ran"].append(job)
            done = self.guarded(job, lambda f=function, n=name: (f(self, n), True)[1])
            if done:
                self.results.finish(job)
            self._clean()

    def failed(self):
        """Jobs of this run, or found in the file, that failed or of which a part did."""
        told = {*self._told["ran"], *self._told["in the file before"]}
        failures = (failure.get("job") for failure in self.results.data["failures"])
        return [job for job in dict.fromkeys(failures) if job in told]

    def complete(self):
        return not self._told["not reached"] and not self.failed()

    def closing(self, report=None):
        """How many jobs there were, which failed, and where files went."""
        count = sum(map(len, self._told.values()))
        parts = [f"{len(jobs)} {what}" for what, jobs in self._told.items() if jobs]
        failed = self.failed()
        parts.append(f"{len(failed)} failed" + (f" ({', '.join(failed)})" if failed else ""))
        files = {"results": self.results.path, "page": report}
        kept = [f"{what} in {path}" for what, path in files.items() if path]
        return f"{count} jobs: {', '.join(parts)}; {', '.join(kept) or 'nothing kept'}"

    def guarded(self, where, function):
        """None where it fails; the failure is recorded. A broken device ends the run."""
        try:
            return function()
        except Unsupported as reason:
            self.results.leave_out(where, reason)
            return None
        except Exception as error:  # noqa: BLE001
            self.results.fail(where, error)
        self._clean()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return None

    def _clean(self):
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
