"""What is measured: named layouts on a device, with random q, k, v."""

import functools

import torch

from kpage import layouts
from kpage.bench import workloads

# Most telling first: a run that has to stop early has these.
ORDER = (
    "full-512",
    "padded-5s",
    "vsa-288-720p",
    "vsa-444-480p",
    "vsa-444-720p",
    "padded-15s",
    "full-1024",
    "svg2-720p-300-1000",
    "ssta-720p-121f",
    "sta-30x45x80",
    "vsa-488-720p",
    "svg2-480p-300-1000",
    "svg2-720p-100-500",
    "padded-10s",
    "full-1536",
    "vsa-488-480p",
    "ssta-720p-241f",
    "padded-30s",
    "full-3072",
    "vsa-288-720p-40-heads",
)
TINY = ("tiny", "tiny-full")  # for a machine without a GPU


class Case:
    """A layout, its figures and its tensors. B = 1; every query head has its key/value head.

    host: the arguments of kpage.plan, on the CPU; None: those of the layout `name`. input_scale:
    what q, k and v are multiplied by.
    """

    def __init__(
        self,
        name,
        device,
        dtype=torch.bfloat16,
        head_dim=128,
        seed=1,
        host=None,
        input_scale=1.0,
    ):
        self.name = name
        self.head_dim = head_dim
        self.host = _layout(name, seed, device) if host is None else host
        self.layout = {key: None if t is None else t.to(device) for key, t in self.host.items()}
        _, self.heads, self.q_blocks, _ = self.host["q2k_block_index"].shape
        self.q_sizes, self.q_offsets = self._partition("q")
        self.kv_sizes, self.kv_offsets = self._partition("kv")
        self.nums = self.host["q2k_block_nums"][0]  # [H, NQ]
        self.index = self.host["q2k_block_index"][0]  # [H, NQ, Kmax]
        self.useful_pairs = self._useful_pairs()
        self._made_of = (device, dtype, seed, input_scale)

    @functools.cached_property
    def _made(self):
        """q, k, v and dO, made when they are first asked for."""
        device, dtype, seed, input_scale = self._made_of
        q_rows = int((self.q_offsets + self.q_sizes).max())
        kv_rows = int((self.kv_offsets + self.kv_sizes).max())
        generator = torch.Generator(device).manual_seed(seed)

        def normal(rows, by=1.0):
            shape = (1, self.heads, rows, self.head_dim)
            x = torch.randn(shape, device=device, dtype=torch.float32, generator=generator)
            return (by * x).to(dtype)

        q, k, v = (normal(n, input_scale) for n in (q_rows, kv_rows, kv_rows))
        for x in (q, k, v):
            x.requires_grad_()
        return q, k, v, normal(q_rows)

    @property
    def tensors(self):
        return self._made[:3]

    @property
    def q(self):
        return self._made[0]

    @property
    def k(self):
        return self._made[1]

    @property
    def v(self):
        return self._made[2]

    @property
    def d_o(self):
        return self._made[3]

    @property
    def qkv_bytes(self):
        """Of the valid rows."""
        rows = int(self.q_sizes.sum()) + 2 * int(self.kv_sizes.sum())
        return rows * self.head_dim * self.q.element_size()

    @property
    def common(self):
        """What every row of results says of it."""
        return {
            "layout": self.name,
            "useful_pairs": self.useful_pairs,
            "head_dim": self.head_dim,
            "heads": self.heads,
        }

    def list(self, head, q_block):
        """The ids of the blocks that a query block attends to."""
        return self.index[head, q_block, : int(self.nums[head, q_block])].long()

    def _partition(self, side):
        """Sizes and first rows of blocks, int64 [H, N]."""
        shared = side == "kv" and self.host["kv_block_sizes"] is None
        side = "q" if shared else side
        sizes, offsets = self.host[f"{side}_block_sizes"], self.host[f"{side}_block_offsets"]
        blocks = sizes.shape[-1]
        if offsets is None:
            offsets = (128 * torch.arange(blocks)).expand(sizes.shape)
        shape = (1, self.heads, blocks)
        sizes, offsets = (t.expand(shape)[0].long() for t in (sizes, offsets))
        return sizes, torch.where(sizes > 0, offsets, 0)

    def _useful_pairs(self):
        valid = torch.arange(self.index.shape[-1]) < self.nums[..., None]
        ids = torch.where(valid, self.index, 0).long()
        keys = torch.gather(self.kv_sizes, 1, ids.flatten(1)).view(ids.shape)
        keys = torch.where(valid, keys, 0).sum(-1)
        return int((keys * self.q_sizes).sum())


def _layout(name, seed, device):
    if name in TINY:
        sizes = torch.tensor([128, 64, 17, 0, 100], dtype=torch.int32)
        if name == "tiny-full":
            sizes.fill_(128)
        index = torch.rand(1, 2, 5, 5, generator=torch.Generator().manual_seed(seed)).argsort(-1)
        nums = torch.full((1, 2, 5), 3, dtype=torch.int32)
        arguments = dict.fromkeys(("kv_block_sizes", "q_block_offsets", "kv_block_offsets"), None)
        return {
            "q2k_block_index": index[..., :3].to(torch.int32).contiguous(),
            "q2k_block_nums": nums,
            "q_block_sizes": sizes,
            **arguments,
        }
    if workloads.knows(name):
        return workloads.layout(name, seed, device)
    if name.endswith("-40-heads"):
        # Lists of further seeds for further heads; all share their blocks.
        parts = [layouts.named(name.removesuffix("-40-heads"), seed + i) for i in range(4)]
        out = dict(parts[0])
        for key in ("q2k_block_index", "q2k_block_nums"):
            out[key] = torch.cat([part[key] for part in parts], 1)[:, :40].contiguous()
        return out
    return layouts.named(name, seed)
