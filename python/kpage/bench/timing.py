"""Device times of functions that take turns, so that the chip's clock is the same for all."""

import contextlib
import statistics
import time

import torch

ROUNDS = 11
PAUSE_S = 0.02  # before a rested call
LONG_MS = 30.0
MEASURE_MS = 4500.0  # of sustained rounds of long kernels
BURST_MS = 16.0  # of back-to-back calls of one function
HOST_CALLS = 21
_QUEUE_CYCLES = 400_000  # spent by the device while the host launches what is timed


class Times:
    """Medians in ms, with their spread, rested (a pause before each call) and sustained (back to
    back with the others)."""

    def __init__(self, rested, sustained):
        self.rested = statistics.median(rested)
        self.sustained = statistics.median(sustained)
        self.rounds = len(sustained)
        self.rested_range = (min(rested), max(rested))
        self.sustained_range = (min(sustained), max(sustained))

    def fields(self):
        return {
            "time_ms": self.sustained,
            "time_range_ms": self.sustained_range,
            "rounds": self.rounds,
            "rested_ms": self.rested,
            "rested_range_ms": self.rested_range,
        }


class DeviceTimer:
    def rested(self, function):
        torch.cuda.synchronize()
        time.sleep(PAUSE_S)
        torch.cuda._sleep(_QUEUE_CYCLES)
        begin, end = self._mark(), None
        function()
        end = self._mark()
        torch.cuda.synchronize()
        return begin.elapsed_time(end)

    def bursts(self, functions, calls, rounds):
        """Times of one call, [function][round]; the device never waits. Every second round runs
        backwards: a kernel that follows a cooler one has a higher clock at first."""
        turns = [i for r in range(rounds) for i in range(len(functions))[:: -1 if r % 2 else 1]]
        marks = [self._mark()]
        for i in turns:
            for _ in range(calls[i]):
                functions[i]()
            marks.append(self._mark())
        torch.cuda.synchronize()
        times = [[] for _ in functions]
        for i, begin, end in zip(turns, marks, marks[1:], strict=False):
            times[i].append(begin.elapsed_time(end) / calls[i])
        return times

    @staticmethod
    def _mark():
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


class HostTimer:
    """The same on a CPU: enough to try the benchmark without a GPU."""

    def rested(self, function):
        begin = time.perf_counter()
        function()
        return (time.perf_counter() - begin) * 1e3

    def bursts(self, functions, calls, rounds):
        return [
            [sum(self.rested(f) for _ in range(count)) / count for _ in range(rounds)]
            for f, count in zip(functions, calls, strict=True)
        ]


def timer_of(device):
    return DeviceTimer() if device.type == "cuda" else HostTimer()


def measure(functions, timer, rounds=ROUNDS):
    """{name: function} -> {name: Times}, after warm-up. All take turns in every round. Kernels of
    many milliseconds have fewer rounds, and fewer rested calls: they do not rest while they run.
    They must have been called before."""
    estimates = []
    for function in functions.values():
        first = timer.rested(function)
        if first < LONG_MS:
            function()
            first = timer.rested(function)
        estimates.append(max(first, 1e-3))
    long = max(estimates) > LONG_MS
    if long:
        rounds = max(3, min(rounds, int(MEASURE_MS / sum(estimates))))
    rested = {name: [] for name in functions}
    for _ in range(max(2, rounds // 3) if long else rounds):
        for name, function in functions.items():
            rested[name].append(timer.rested(function))
    calls = [max(1, min(50, round(BURST_MS / ms))) for ms in estimates]
    timed = list(functions.values())
    timer.bursts(timed, calls, 1 if long else 2)  # to the sustained clock
    sustained = timer.bursts(timed, calls, rounds)
    return {name: Times(rested[name], sustained[i]) for i, name in enumerate(functions)}


def captured(function, device):
    """A function that replays the device's work of `function`, without the host's; on a CPU, itself.
    It must have been called before."""
    if device.type != "cuda":
        return function
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def host_ms(function, device):
    """What a call takes of the host's time, median; the device does its part in the meantime."""
    times = []
    for _ in range(HOST_CALLS):
        begin = time.perf_counter()
        function()
        times.append((time.perf_counter() - begin) * 1e3)
        if device.type == "cuda":
            torch.cuda.synchronize()
    return statistics.median(times)


def nvml_device():
    """NVML and its handle of the current GPU; ImportError without the module."""
    import pynvml

    pynvml.nvmlInit()
    return pynvml, pynvml.nvmlDeviceGetHandleByIndex(torch.cuda.current_device())


def device_state():
    """SM clock in MHz, temperature in C and power in W now; empty where nobody tells."""
    if not torch.cuda.is_available():
        return {}
    with contextlib.suppress(ImportError, OSError):
        nvml, device = nvml_device()
        with contextlib.suppress(nvml.NVMLError):
            return {
                "sm_mhz": nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM),
                "temperature_c": nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU),
                "power_w": nvml.nvmlDeviceGetPowerUsage(device) / 1e3,
            }
    return {}
