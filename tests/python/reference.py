"""What attention over a block graph is: masked softmax in fp64, from the layout alone."""

import math

import torch


class Layout:
    """A random or given block layout on the CPU, with what `kpage.plan` takes."""

    def __init__(self, index, nums, q_sizes, kv_sizes=None, q_offsets=None, kv_offsets=None):
        self.index, self.nums, self.q_sizes = index, nums, q_sizes
        self.kv_sizes, self.q_offsets, self.kv_offsets = kv_sizes, q_offsets, kv_offsets

    @property
    def arguments(self):
        return (self.index, self.nums, self.q_sizes, self.kv_sizes)

    @property
    def offsets(self):
        return {"q_block_offsets": self.q_offsets, "kv_block_offsets": self.kv_offsets}

    def mask(self, q_rows, kv_rows):
        """bool [B, H, Sq, Sk], true where the query row attends to the key row."""
        batch, heads, q_blocks, _ = self.index.shape
        shared = self.kv_sizes is None
        q_of = _blocks_of_rows(self.q_sizes, self.q_offsets, batch, heads, q_rows)
        kv_of = _blocks_of_rows(
            self.q_sizes if shared else self.kv_sizes,
            self.q_offsets if shared else self.kv_offsets,
            batch,
            heads,
            kv_rows,
        )
        kv_blocks = (self.q_sizes if shared else self.kv_sizes).shape[-1]
        graph = torch.zeros(batch, heads, q_blocks + 1, kv_blocks + 1, dtype=torch.bool)
        for b in range(batch):
            for h in range(heads):
                for q in range(q_blocks):
                    count = int(self.nums[b, h, q])
                    graph[b, h, q, self.index[b, h, q, :count].long()] = True
        rows = torch.gather(graph, 2, q_of[..., None].expand(-1, -1, -1, kv_blocks + 1))
        return torch.gather(rows, 3, kv_of[:, :, None].expand(-1, -1, q_rows, -1))

    def valid(self, q_rows, kv_rows):
        """bool [B, H, Sq] and [B, H, Sk]: the rows that are not padding."""
        batch, heads = self.index.shape[:2]
        shared = self.kv_sizes is None
        q_of = _blocks_of_rows(self.q_sizes, self.q_offsets, batch, heads, q_rows)
        kv_sizes = self.q_sizes if shared else self.kv_sizes
        kv_offsets = self.q_offsets if shared else self.kv_offsets
        kv_of = _blocks_of_rows(kv_sizes, kv_offsets, batch, heads, kv_rows)
        return q_of < self.q_sizes.shape[-1], kv_of < kv_sizes.shape[-1]


def _blocks_of_rows(sizes, offsets, batch, heads, rows):
    """int64 [B, H, rows]: the block that each row belongs to; N for padding."""
    blocks = sizes.shape[-1]
    if offsets is None:
        offsets = (128 * torch.arange(blocks)).expand(sizes.shape)
    out = torch.full((batch, heads, rows), blocks)
    sizes = sizes.expand(batch, heads, blocks)
    offsets = offsets.expand(batch, heads, blocks)
    for b in range(batch):
        for h in range(heads):
            for n in range(blocks):
                first = int(offsets[b, h, n])
                out[b, h, first : first + int(sizes[b, h, n])] = n
    return out


def attention(q, k, v, mask, scale=None):
    """O [B, H, Sq, D] and LSE [B, H, Sq] in fp64; differentiable. Rows without a key give 0, -inf."""
    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    used = mask.any(2)[..., None]  # padding may hold NaN, and 0 * NaN is NaN
    k, v = torch.where(used, k, 0.0), torch.where(used, v, 0.0)
    seeing = mask.any(3)
    q = torch.where(seeing[..., None], q, 0.0)
    scores = (scale * q @ k.mT).masked_fill(~mask, -math.inf)
    top = scores.amax(-1, keepdim=True).masked_fill(~seeing[..., None], 0.0).detach()
    weights = torch.exp(scores - top)
    total = weights.sum(-1, keepdim=True)
    total = torch.where(seeing[..., None], total, 1.0)
    lse = torch.where(seeing, (top + torch.log(total))[..., 0], -math.inf)
    return weights / total @ v, lse


def relative_error(got, expected):
    got, expected = got.detach().double(), expected.detach().double()
    return float((got - expected).norm() / expected.norm().clamp_min(1e-30))


def random_layout(
    seed, *, batch=1, heads=2, q_sizes, kv_sizes=None, kmax=None, scope=1, offsets=False
):
    """Random lists over blocks of the given sizes. `scope`: dimensions of the sizes' tensors."""
    generator = torch.Generator().manual_seed(seed)

    def sizes_tensor(sizes):
        sizes = torch.tensor(sizes, dtype=torch.int32)
        if scope == 1:
            return sizes
        lead = (heads,) if scope == 2 else (batch, heads)
        return torch.stack(
            [
                sizes[torch.randperm(len(sizes), generator=generator)]
                for _ in range(math.prod(lead))
            ]
        ).reshape(*lead, -1)

    def offsets_tensor(sizes):
        # Blocks end to end in a random order, with a gap of 3 rows after each.
        order = torch.rand(sizes.shape, generator=generator).argsort(-1)
        ends = torch.gather(sizes + 3, -1, order).cumsum(-1)
        starts = 5 + ends - torch.gather(sizes + 3, -1, order)
        return torch.empty_like(ends).scatter_(-1, order, starts).to(torch.int32)

    q = sizes_tensor(q_sizes)
    kv = None if kv_sizes is None else sizes_tensor(kv_sizes)
    kv_blocks = (q if kv is None else kv).shape[-1]
    kmax = kv_blocks if kmax is None else kmax
    shape = (batch, heads, len(q_sizes))
    index = torch.rand(*shape, kv_blocks, generator=generator).argsort(-1)[..., :kmax]
    nums = torch.randint(0, kmax + 1, shape, generator=generator)
    past = torch.arange(kmax) >= nums[..., None]
    index = index.masked_fill(past, 1 << 20)  # ignored, so it may be anything
    return Layout(
        index.to(torch.int32),
        nums.to(torch.int32),
        q,
        kv,
        offsets_tensor(q) if offsets else None,
        offsets_tensor(kv) if offsets and kv is not None else None,
    )
