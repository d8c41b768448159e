"""The suites: which measurements, on which layouts, in which order."""

from kpage.bench import beside, checks, experiments, own, workloads
from kpage.bench.cases import ORDER

PEERS_ON = ORDER[:6]
CONTROLLED = (
    *("full-512", "full-1024", "full-1536", "full-3072"),
    *("padded-5s", "padded-10s", "padded-15s", "padded-30s"),
)
PAPER_LIKE = tuple(f"representative-{i}" for i in range(1, 6))
REPRESENTATIVE = (*PAPER_LIKE, *workloads.OWN)
OPEN_SOURCE = (
    *("ssta-720p-121f", "ssta-720p-241f", "sta-30x45x80"),
    *("vsa-444-480p", "vsa-488-480p", "vsa-444-720p", "vsa-488-720p"),
    *("svg2-480p-300-1000", "svg2-720p-300-1000", "svg2-720p-100-500"),
)
CHECKED = ("full-512", "padded-5s", "vsa-444-480p")

_KINDS = {
    "own": own.measure_own,
    "peers": beside.measure_peers,
    "dense": beside.measure_dense,
    "sweep": own.measure_sweep,
    "accounting": experiments.account,
    "loads": experiments.load,
    "ablation": experiments.ablate,
    "order": experiments.order,
    "repeat": checks.repeat,
    "accuracy": checks.accuracy,
    "energy": checks.energy,
}
# Suites share jobs: what one has measured, the next does not measure again.
SUITES = {
    "own": [("own", name) for name in ORDER],
    "peers": [("peers", name) for name in PEERS_ON],
    "controlled": [("peers", name) for name in CONTROLLED],
    "representative": [("peers", name) for name in REPRESENTATIVE],
    "open-source": [("peers", name) for name in OPEN_SOURCE],
    "accounting": [("accounting", name) for name in (*REPRESENTATIVE, *ORDER)],
    "ideal": [(kind, name) for name in PAPER_LIKE for kind in ("peers", "dense")],
    "backward": [
        *((kind, name) for name in PAPER_LIKE for kind in ("peers", "dense")),
        *(("peers", name) for name in OPEN_SOURCE),
    ],
    "plans": [("own", name) for name in ORDER],
    "scaling": [("sweep", name) for name in workloads.sweep_names()],
    "loads": [("loads", name) for name in ("full-512", "full-1024")],
    "ablations": [
        *(("ablation", name) for name in ("padded-5s", "vsa-288-720p", "vsa-444-480p")),
        *(("order", name) for name in ("sta-30x45x80", "padded-5s")),
    ],
    "checks": [
        *(("repeat", name) for name in CHECKED),
        *(("accuracy", name) for name in ("whole-8k", "whole-8k-sparse")),
        *(("energy", name) for name in ("full-512", "padded-5s")),
    ],
    # Everything once at a length for a machine without a GPU.
    "tiny": [
        *((kind, "tiny") for kind in ("own", "peers", "dense", "accounting", "repeat", "order")),
        *(("loads", "tiny-full"), ("ablation", "tiny"), ("accuracy", "whole-tiny")),
        ("sweep", "scale-tokens-1000"),
    ],
}
DEFAULT = ("own", "peers")


def jobs(suites, layouts=None):
    """{(kind, layout): function} of the suites, each once, in their order. layouts: only these."""
    wanted = [job for suite in suites for job in SUITES[suite]]
    return {
        (kind, name): _KINDS[kind] for kind, name in wanted if layouts is None or name in layouts
    }
