"""Block layouts: what to give `kpage.plan`.

A system's module has `select` where its lists follow from q and k, and `layout` where they do not;
both return the arguments of a plan:

    tiling = kpage.layouts.tiling((21, 45, 80), (4, 4, 4), device="cuda")
    plan = kpage.plan(**kpage.layouts.vsa.select(q, k, tiling, sparsity=0.9))

q and k are in the order of the rows that attention will see, [B, H, rows, D]. A tiling and static
layouts are made on the host once; selectors run on the device, with shapes that do not depend on
values and without waiting for it, under `torch.compile` and in CUDA graphs too. Where scores tie, the
lower index wins.
"""

from kpage._library import ops
from kpage.layouts import _checks, cubes, radial, sparge, ssta, sta, svg1, svg2, vorta, vsa
from kpage.layouts._lists import from_block_map, from_csr
from kpage.layouts._tiling import Tiling, linear_tiling, tiling
from kpage.layouts.convert import from_bsa, from_fa4, from_flex

__all__ = [
    "Tiling",
    "cubes",
    "from_block_map",
    "from_bsa",
    "from_csr",
    "from_fa4",
    "from_flex",
    "linear_tiling",
    "named",
    "names",
    "radial",
    "sparge",
    "ssta",
    "sta",
    "svg1",
    "svg2",
    "tiling",
    "vorta",
    "vsa",
]


def names():
    """The layouts that `named` knows."""
    return ops.layout_names()


def named(name, seed=0):
    """A layout that benchmarks speak of ("padded-5s", "vsa-444-720p", ...), the same for a seed on
    every machine, as the arguments of `kpage.plan`: `kpage.plan(**named("padded-5s"))`."""
    seed = _checks.integer("seed", seed, 0)
    tensors = (t if t.numel() > 0 else None for t in ops.named_layout(name, seed))
    arguments = (
        "q2k_block_index",
        "q2k_block_nums",
        "q_block_sizes",
        "kv_block_sizes",
        "q_block_offsets",
        "kv_block_offsets",
    )
    return dict(zip(arguments, tensors, strict=True))
