"""A case as tiles of whole hardware blocks, which is how other kernels want it."""

import torch

BLOCK = 128
HALF = 64


class Tiles:
    """Lists of tiles in a padded placement: tile t of a head has its rows at block * t.

    lists: int32 [H, NQ, K], ascending, prefixes of `counts` [H, NQ]. q_sizes, kv_sizes: valid rows
    of a tile, int32 [H, N]. q_places, kv_places: where the valid rows lie, as positions in rows of
    all heads, in the order of `Problem.valid_rows`.
    """

    def __init__(self, block, lists, counts, q_sizes, kv_sizes):
        self.block = block
        self.lists = lists
        self.counts = counts
        self.q_sizes = q_sizes
        self.kv_sizes = kv_sizes
        self.q_rows = block * q_sizes.shape[1]  # of a head, padding included
        self.kv_rows = block * kv_sizes.shape[1]
        self.q_places = _places(q_sizes, block)
        self.kv_places = _places(kv_sizes, block)
        self.full = bool((kv_sizes == block).all())
        self.equal_lists = bool((counts == lists.shape[-1]).all())

    def whole_and_partial(self):
        """Lists [H, NQ, K] and counts [H, NQ] of the full tiles, and of the others."""
        listed = _listed(self.lists, self.counts)
        sizes = torch.gather(self.kv_sizes, 1, self.lists.long().flatten(1)).view(self.lists.shape)
        whole = sizes == self.block
        return self._kept(listed & whole), self._kept(listed & ~whole)

    def _kept(self, selected):
        none = self.kv_sizes.shape[1]
        kept = torch.where(selected, self.lists, none).sort(-1).values
        return torch.where(kept == none, 0, kept).int().contiguous(), selected.sum(-1).int()

    def map(self):
        """bool [H, NQ, NK]: which tiles see each other."""
        heads, q_tiles, _ = self.lists.shape
        none = self.kv_sizes.shape[1]
        ids = torch.where(_listed(self.lists, self.counts), self.lists.long(), none)
        out = torch.zeros(heads, q_tiles, none + 1, dtype=torch.bool, device=ids.device)
        return out.scatter_(2, ids, True)[..., :none]


class Problem:
    """A case, its valid rows, and its tiles. Rows of all heads are numbered one after the other."""

    def __init__(self, case):
        self.case = case
        device = case.q.device
        self.q_sizes = case.q_sizes.to(device)  # [H, NQ]
        self.kv_sizes = case.kv_sizes.to(device)  # [H, NK]
        self.one_partition = case.host["kv_block_sizes"] is None
        self.shared_sizes = self.one_partition and case.host["q_block_sizes"].dim() == 1
        self.nums = case.nums.to(device)  # [H, NQ]
        ids = case.index.to(device)  # [H, NQ, Kmax]
        none = self.kv_sizes.shape[1]
        ids = torch.where(_listed(ids, self.nums), ids, none).sort(-1).values
        self.index = torch.where(ids == none, 0, ids).int().contiguous()  # ascending
        self._q_rows = _own_rows(self.q_sizes, case.q_offsets.to(device), case.q.shape[2])
        self._kv_rows = _own_rows(self.kv_sizes, case.kv_offsets.to(device), case.k.shape[2])

    def valid_rows(self, x, side="q"):
        """The valid rows of q, dO, O ("q") or of k, v ("kv") [1, H, S, D], as [rows, D]."""
        rows = self._q_rows if side == "q" else self._kv_rows
        return x.detach()[0].flatten(0, 1)[rows]

    def inputs(self, tiles):
        """q, k, v, dO [1, H, rows, D] with valid rows in tiles' places and zeros elsewhere."""
        case = self.case
        return [
            self._placed(x, side, places, count)
            for x, side, places, count in (
                (case.q, "q", tiles.q_places, tiles.q_rows),
                (case.k, "kv", tiles.kv_places, tiles.kv_rows),
                (case.v, "kv", tiles.kv_places, tiles.kv_rows),
                (case.d_o, "q", tiles.q_places, tiles.q_rows),
            )
        ]

    def _placed(self, x, side, places, count):
        out = x.new_zeros(x.shape[1] * count, x.shape[3])
        out[places] = self.valid_rows(x, side)
        return out.view(1, x.shape[1], count, x.shape[3])

    def tiles(self):
        """Each block a tile of 128 rows."""
        return Tiles(BLOCK, self.index, self.nums.int(), self.q_sizes.int(), self.kv_sizes.int())

    def ranges(self):
        """Pairs of a query block and a key/value block that see each other, neither empty, as
        ranges of the rows that `valid_rows` has: int32 [pairs, 2] of queries, and of keys."""
        heads, blocks, ids = self._pairs()
        out = []
        for sizes, numbers in ((self.q_sizes, blocks), (self.kv_sizes, ids)):
            end = sizes.flatten().cumsum(0).view(sizes.shape)[heads, numbers]
            out.append(torch.stack([end - sizes[heads, numbers], end], -1).int().contiguous())
        return out

    def _pairs(self):
        heads, blocks, places = _listed(self.index, self.nums).nonzero(as_tuple=True)
        ids = self.index[heads, blocks, places].long()
        used = (self.q_sizes[heads, blocks] > 0) & (self.kv_sizes[heads, ids] > 0)
        return heads[used], blocks[used], ids[used]

    def halves(self, keep_empty=False):
        """Blocks cut in tiles of 64 rows; keep_empty: two of every block, else those with rows."""
        q_sizes, parents, _ = _halved(self.q_sizes, keep_empty)
        kv_sizes, _, first = _halved(self.kv_sizes, keep_empty)
        none = kv_sizes.shape[1]
        ids = self.index.long().flatten(1)
        listed = _listed(self.index, self.nums).flatten(1)
        rows = torch.gather(self.kv_sizes, 1, ids)
        has_head, has_tail = (listed & ((rows > least) | keep_empty) for least in (0, HALF))
        heads = torch.where(has_head, torch.gather(first, 1, ids), none)
        tails = torch.where(has_tail, torch.gather(first, 1, ids) + 1, none)
        lists = torch.stack([heads, tails], -1).view(*self.index.shape[:2], -1).sort(-1).values
        counts = (lists < none).sum(-1)
        longest = max(1, int(counts.max()))
        lists = torch.where(lists < none, lists, 0).int()[..., :longest]
        rows = parents[..., None].expand(-1, -1, longest)
        counts = torch.where((q_sizes > 0) | keep_empty, torch.gather(counts, 1, parents), 0)
        lists = torch.gather(lists, 1, rows).contiguous()
        return Tiles(HALF, lists, counts.int(), q_sizes.int(), kv_sizes.int())


def _listed(ids, counts):
    return torch.arange(ids.shape[-1], device=ids.device) < counts[..., None]


def _valid(sizes, block):
    return torch.arange(block, device=sizes.device) < sizes[..., None]


def _places(sizes, block):
    return _valid(sizes, block).flatten().nonzero()[:, 0]


def _own_rows(sizes, offsets, rows):
    heads = torch.arange(sizes.shape[0], device=sizes.device)[:, None, None]
    own = offsets[..., None] + torch.arange(BLOCK, device=sizes.device) + rows * heads
    return own[_valid(sizes, BLOCK)]


def _halved(sizes, keep_empty):
    """Sizes [H, M] of the halves of blocks, the block [H, M] each comes from, and each block's
    first half [H, N]. Heads with fewer halves end in empty ones."""
    kept = (sizes > 0).long() + (sizes > HALF).long()
    if keep_empty:
        kept.fill_(2)
    first = kept.cumsum(1) - kept
    count = max(1, int(kept.sum(1).max()))
    halves = torch.arange(count, device=sizes.device).expand(sizes.shape[0], count)
    last = first + kept  # ascending
    parents = torch.searchsorted(last.contiguous(), halves.contiguous(), right=True)
    parents = parents.clamp(max=sizes.shape[1] - 1)
    of_parent = torch.gather(sizes, 1, parents)
    second = halves != torch.gather(first, 1, parents)
    half = torch.where(second, (of_parent - HALF).clamp(min=0), of_parent.clamp(max=HALF))
    return torch.where(halves < kept.sum(1, keepdim=True), half, 0), parents, first
