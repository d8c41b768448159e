"""What files of results say together: rows by layout and pass, factors over peers, misses."""

import math

from kpage.bench.results import OWN_BESIDE, TARGETS

BSA = "NVIDIA BSA blk128"  # the paper's comparison
STEPS = ("forward", "forward+backward")
NEARLY_FULL = ("full-", "sta-", "own-full")
SMALL_BLOCKS = ("vsa-444", "own-half")
LIMITS = {"plan_forward": 0.03, "plan_backward": 0.05, "plan_memory": 0.05, "loads": 0.03}


class Summary:
    """files: as written by Results. Where two have the same row, the later file counts."""

    def __init__(self, files):
        self.files = files
        self.on_gpu = any(data["device"] != "CPU" for data in files)
        self.rows = [
            {"kernel": "kpage", **row}
            for data in files
            for part in ("rows", "figures")
            for row in data.get(part, ())
        ]
        self.peers = {}
        for data in files:
            for name, said in data["peers"].items():
                if name not in self.peers or not said.startswith(("absent", "not asked")):
                    self.peers[name] = said

    def of(self, step, kernel=None, **also):
        """Rows of a pass, one a layout and kernel."""
        found = {}
        for row in self.rows:
            if (
                row["pass"] == step
                and (kernel is None or row["kernel"] == kernel)
                and all(row.get(key) == value for key, value in also.items())
            ):
                found[row["layout"], row["kernel"]] = row
        return list(found.values())

    def one(self, layout, step, kernel="kpage", key=None):
        """The last row of this layout, pass and kernel that has `key`; None where there is none."""
        found = None
        for row in self.rows:
            if (row["layout"], row["pass"], row["kernel"]) == (layout, step, kernel) and (
                key is None or row.get(key) is not None
            ):
                found = row
        return found

    def own(self, layout, step):
        """KPage beside its peers, or by itself."""
        return self.one(layout, step, OWN_BESIDE) or self.one(layout, step)

    def peer_rows(self, layout, step):
        rows = {}
        for row in self.rows:
            if row["layout"] == layout and row["pass"] == step and "kpage_ms" in row:
                rows[row["kernel"]] = row
        return list(rows.values())

    def best_peer(self, layout, step):
        """The fastest exact one beside KPage, by its time over KPage's in the same rounds."""
        return self.fastest_of(layout, step, "")

    def fastest_of(self, layout, step, begin):
        """The fastest exact one of the kernels whose names begin so."""
        exact = [row for row in self.peer_rows(layout, step) if row["exact"]]
        return min((r for r in exact if r["kernel"].startswith(begin)), key=factor, default=None)

    def against(self, layout, step, begin):
        """KPage's factor over it."""
        row = self.fastest_of(layout, step, begin)
        return row and factor(row)

    def measured(self, step):
        """Layouts with peers' rows, in the order of the file."""
        rows = (row for row in self.rows if row["pass"] == step and "kpage_ms" in row)
        return list(dict.fromkeys(row["layout"] for row in rows))

    def missed(self):
        """[(layout, pass, what), ...]: not the fastest, below a factor or floor, over a limit."""
        out = []
        for step in STEPS:
            for layout in self.measured(step):
                best = self.best_peer(layout, step)
                if best is not None:
                    out += _against_peers(layout, step, best, self)
        for layout, targets in TARGETS.items():
            for step, floor in (("forward", targets[0]), ("forward+backward", targets[2])):
                row = self.one(layout, step, key="fraction_of_ideal")
                if row and row["fraction_of_ideal"] < floor:
                    out.append(
                        (
                            layout,
                            step,
                            f"{row['fraction_of_ideal']:.2f} of ideal, floor {floor:.2f}",
                        )
                    )
        out += self._over_limits()
        return out

    def _over_limits(self):
        out = []
        for row in self.of("plan"):
            if not row.get("backward_ms"):  # a selector's, or backward failed
                continue
            for name, share in plan_shares(row).items():
                if share > LIMITS[name]:
                    text = f"{name.replace('_', ' ')} {share:.1%}, limit {LIMITS[name]:.0%}"
                    out.append((row["layout"], "plan", text))
        for row in self.of("forward"):
            if "pieces" in row["kernel"] and row["of_first"] > 1 + LIMITS["loads"]:
                text = f"{row['kernel']}: {row['of_first'] - 1:.1%} over whole blocks, limit 3%"
                out.append((row["layout"], "loads", text))
        for row in accuracy_rows(self):
            at = f"{row['dtype']}, inputs times {row['input_scale']:g}"
            for key, limit in (("of_flash_forward", 1.1), ("of_flash_gradients", 1.25)):
                if row.get(key) and row[key] > limit:
                    text = f"{at}: {row[key]:.2f} times the error of flash attention, limit {limit}"
                    out.append((row["layout"], key.removeprefix("of_flash_"), text))
        return out


def accuracy_rows(summary):
    found = {}
    for row in summary.rows:
        if row["pass"] == "accuracy":
            found[row["layout"], row["kernel"], row["dtype"], row["input_scale"]] = row
    return list(found.values())


def factor(row):
    """A peer's time over KPage's, both sustained and in the same rounds."""
    return row["time_ms"] / row["kpage_ms"]


def asked_factor(layout):
    return 1.05 if layout.startswith((*NEARLY_FULL, *SMALL_BLOCKS)) else 1.25


def plan_shares(row):
    return {
        "plan_forward": row["plan_forward_ms"] / row["forward_ms"],
        "plan_backward": row["plan_backward_ms"] / row["backward_ms"],
        "plan_memory": row["plan_bytes"] / row["qkv_bytes"],
    }


def _below(factor):
    """Two places, rounded down, so that what is missed does not read as reached."""
    return f"{math.floor(100 * factor + 1e-6) / 100:.2f}"


def _against_peers(layout, step, best, summary):
    out = []
    by = factor(best)
    if by < 1:
        out.append((layout, step, f"not the fastest: {best['kernel']} takes {by:.2f} of its time"))
    elif by < asked_factor(layout):
        text = f"{_below(by)} times faster than {best['kernel']}, asked {asked_factor(layout)}"
        out.append((layout, step, text))
    rested = [
        (row["rested_ms"] / row["kpage_rested_ms"], row["kernel"])
        for row in summary.peer_rows(layout, step)
        if row["exact"] and row.get("kpage_rested_ms")
    ]
    if rested and min(rested)[0] < 1 <= by:
        text = (
            f"not the fastest rested: {min(rested)[1]} takes {_below(min(rested)[0])} of its time"
        )
        out.append((layout, step, text))
    bsa = summary.against(layout, step, BSA)
    if bsa is not None and bsa < 1.6 and asked_factor(layout) > 1.05:
        out.append((layout, step, f"{_below(bsa)} times faster than NVIDIA BSA blk128, asked 1.6"))
    return out
