"""Sequences cut into tiles and blocks: the C++ geometry, as tensors."""

import copy
import math

import torch
import torch.nn.functional as F

from kpage._library import ops
from kpage._plan import narrowed
from kpage.layouts import _checks, _lists, _ops

_TENSORS = (
    "tile_sizes",
    "tile_offsets",
    "block_sizes",
    "block_offsets",
    "row_of_token",
    "token_of_row",
    "tile_of_block",
    "first_block",
    "blocks_of_tile",
    "block_of_row",
)


class Tiling:
    """A sequence cut into tiles, and tiles into blocks of at most 128 rows. Made by `tiling`.

    Tiles are chunks of the prefix, the cubes of the grid in raster order, and chunks of the suffix.
    A tile's tokens are in raster order within the cube as the grid cuts it, so that valid rows are a
    prefix of each block. No block is empty. All members are on `device` and int32:

        tile_sizes, tile_offsets: [tiles], valid rows of each tile and its first row.
        block_sizes, block_offsets: [blocks], the same of each block.
        tile_of_block: [blocks]. first_block, blocks_of_tile: [tiles].
        row_of_token: [tokens], where the token goes. token_of_row: [rows], -1 in padding.
        block_of_row: [rows], -1 in padding.

    and the numbers `grid`, `cube`, `cubes` (how many each way), `tiles`, `blocks`, `rows`, `tokens`,
    `prefix_tiles`, `suffix_tiles`.
    """

    def __init__(self, grid, cube, prefix, suffix, placement):
        counts, sizes, offsets, block_sizes, block_offsets, rows, tokens = ops.tiling(
            prefix, grid, suffix, cube, placement
        )
        *cubes, self.prefix_tiles, self.suffix_tiles = counts.tolist()
        self.grid, self.cube, self.cubes = tuple(grid), tuple(cube), tuple(cubes)
        self.placement = placement
        self.segments = (prefix, grid, suffix, cube)  # as the ops of the geometry take them
        self.tile_sizes, self.tile_offsets = sizes, offsets
        self.block_sizes, self.block_offsets = block_sizes, block_offsets
        self.row_of_token, self.token_of_row = rows, tokens
        self.tiles, self.blocks = sizes.shape[0], block_sizes.shape[0]
        self.tokens, self.rows = rows.shape[0], tokens.shape[0]
        # Tiles have rows and no gaps, so a block is a tile's if it begins within it.
        self.tile_of_block = (
            torch.searchsorted(offsets, block_offsets, right=True).to(torch.int32) - 1
        )
        self.blocks_of_tile = self.tile_of_block.bincount(minlength=self.tiles).to(torch.int32)
        self.first_block = (self.blocks_of_tile.cumsum(0) - self.blocks_of_tile).to(torch.int32)
        self.block_of_row = torch.full((self.rows,), -1, dtype=torch.int32)
        numbers = torch.arange(self.blocks, dtype=torch.int32)
        self.block_of_row[_rows_of_blocks(block_offsets, block_sizes)] = (
            numbers.repeat_interleave(block_sizes)
        )
        self.most_blocks = int(self.blocks_of_tile.max()) if self.tiles else 0

    @property
    def device(self):
        return self.tile_sizes.device

    @property
    def cube_count(self):
        """Tiles that are cubes of the grid."""
        return self.tiles - self.prefix_tiles - self.suffix_tiles

    def to(self, device):
        """The same tiling on another device; itself where it is there already."""
        if self.device == torch.device(device):
            return self
        other = copy.copy(self)
        for name in _TENSORS:
            setattr(other, name, getattr(self, name).to(device))
        return other

    def means(self, x):
        """The mean over the valid rows of each tile, whatever padding holds.

        Args:
            x: [B, H, rows, D], rows as in this tiling.

        Returns:
            float32 [B, H, tiles, D]; summed in float32. Differentiable.
        """
        return self.sums(x) / self.tile_sizes[:, None]

    def sums(self, x):
        """The sum over the valid rows of each tile, float32 [B, H, tiles, D]; else as `means`."""
        _checks.rows_of("x", x, self)
        sums = _ops.block_sums(x, self)
        if self.most_blocks <= 1:
            return sums
        total = sums.index_select(2, self.first_block)
        for i in range(1, self.most_blocks):
            has = self.blocks_of_tile > i
            block = torch.where(has, self.first_block + i, 0)
            total = total + torch.where(has[:, None], sums.index_select(2, block), 0.0)
        return total

    def layout(self, index, nums, kv_tiling=None):
        """The arguments of `kpage.plan` for lists of tiles: every block of a tile gets all blocks of
        the tiles in the tile's list.

        Args:
            index: int32 or int64 [B, H, tiles, K], tiles of `kv_tiling`, no tile twice.
            nums: int32 or int64 [B, H, tiles], the valid prefix of each list. An id of no tile, and
                a count that is negative or over K, are errors of `kpage.plan`.
            kv_tiling: of the keys and values. None: this one.

        Returns:
            dict, for `kpage.plan(**arguments)`; the lists keep the order of `index`.
        """
        kv = self if kv_tiling is None else kv_tiling
        _checks.ints("index", index, "B H tiles K", like=self)
        _checks.ints("nums", nums, "B H tiles", like=self)
        _checks.sized("index", index, (*index.shape[:2], self.tiles, index.shape[3]))
        _checks.sized("nums", nums, index.shape[:3])
        if kv.device != self.device:
            raise ValueError(
                f"kv_tiling: expected a tiling on {self.device}, got one on {kv.device}"
            )
        index, nums = _blocks_of_tiles(kv, index, nums)
        if self.most_blocks > 1:
            index = index.index_select(2, self.tile_of_block)
            nums = nums.index_select(2, self.tile_of_block)
        same = kv is self
        return {
            "q2k_block_index": narrowed(index).contiguous(),
            "q2k_block_nums": narrowed(nums).contiguous(),
            "q_block_sizes": self.block_sizes,
            "kv_block_sizes": None if same else kv.block_sizes,
            "q_block_offsets": self.block_offsets,
            "kv_block_offsets": None if same else kv.block_offsets,
        }

    def layout_of_map(self, tile_map, max_list=None, kv_tiling=None):
        """As `layout`, for bool [B, H, tiles, tiles of kv_tiling]; lists are ascending.
        `max_list`: room for tiles in a list; a longer one is an error of `kpage.plan`."""
        return self.layout(*_lists.lists_of_map(tile_map, max_list), kv_tiling)

    def with_dense_segments(self, index):
        """Lists of all tiles from lists of the grid's cubes: tiles of the prefix and suffix attend
        to all tiles, and all tiles to them.

        Args:
            index: int [B, H, cubes, K], cubes numbered from 0, every list full.

        Returns:
            int32 [B, H, tiles, Kmax] and [B, H, tiles], for `layout`.
        """
        batch, heads, cubes, keep = index.shape
        segments = self.tiles - cubes
        nums = torch.full((cubes,), segments + keep, dtype=torch.int32, device=index.device)
        index = index.to(torch.int32)
        if segments == 0:
            return index, nums.expand(batch, heads, -1)
        ids = torch.arange(self.tiles, dtype=torch.int32, device=index.device)
        before, after = self.prefix_tiles, self.tiles - self.suffix_tiles
        lists = [
            ids[:before].expand(batch, heads, cubes, -1),
            index + before,
            ids[after:].expand(batch, heads, cubes, -1),
        ]
        index = F.pad(torch.cat(lists, -1), (0, cubes - keep))
        dense = ids.expand(batch, heads, self.tiles, -1)
        index = torch.cat([dense[:, :, :before], index, dense[:, :, after:]], 2)
        nums = F.pad(nums, (before, self.suffix_tiles), value=self.tiles)
        return index, nums.expand(batch, heads, -1)

    def cubes_of(self, x):
        """The part of x [B, H, tiles, ...] that belongs to cubes of the grid."""
        return x[:, :, self.prefix_tiles : self.tiles - self.suffix_tiles]

    def __repr__(self):
        return (
            f"kpage.layouts.Tiling(grid={self.grid}, cube={self.cube}, tiles={self.tiles}, "
            f"blocks={self.blocks}, rows={self.rows}, placement={self.placement!r}, "
            f"device='{self.device}')"
        )


def _rows_of_blocks(offsets, sizes):
    """int64 [valid rows]: the rows of all blocks, block after block."""
    within = torch.arange(int(sizes.sum())) - (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    return within + offsets.repeat_interleave(sizes)


def _blocks_of_tiles(tiling, index, nums):
    """Lists of blocks from lists of tiles of `tiling`, in the same order."""
    most = tiling.most_blocks
    if most <= 1:
        return index, nums
    keep = index.shape[-1]
    index, nums = narrowed(index), narrowed(nums)
    valid = torch.arange(keep, device=index.device) < nums[..., None]
    known = (index >= 0) & (index < tiling.tiles)
    tile = torch.where(valid & known, index, 0).long()
    # An id of no tile becomes one of no block.
    count = torch.where(valid, torch.where(known, tiling.blocks_of_tile[tile], 1), 0)
    unknown = torch.where(index < 0, index, index + (tiling.blocks - tiling.tiles))
    first = torch.where(valid & ~known, unknown, tiling.first_block[tile])
    begin = count.cumsum(-1, dtype=torch.int32) - count
    width = min(keep * most, tiling.blocks)
    blocks = first.new_zeros((*index.shape[:-1], width + 1))
    for i in range(most):
        # The last column is cut off. Lists with a tile twice may have more than the others.
        target = torch.where(i < count, begin + i, width).clamp(max=width)
        blocks = blocks.scatter(-1, target.long(), first + i)
    # A count that the list has no room for stays over the room, and a negative one negative.
    total = torch.where(nums > keep, nums + (width - keep), count.sum(-1, dtype=torch.int32))
    return blocks[..., :width], torch.where(nums < 0, nums, total)


def tiling(grid, cube, *, prefix=(), suffix=(), placement="blk128", device="cpu"):
    """Cuts a model's sequence into tiles and blocks.

    Args:
        grid: (t, h, w), latent tokens each way; tokens in raster order, width innermost.
        cube: (t, h, w) of a tile. Volumes over 128 rows are split into full blocks and a remainder,
            which have the same neighbourhood.
        prefix, suffix: lengths of segments (text, audio, ...) before and after the grid, each cut
            into chunks of the cube's volume.
        placement: where tiles lie: "blk128" (block b at row 128 b), "tile" (tile i at row i times the
            volume), "dense" (end to end), "raster" (tokens stay; a tile has to be contiguous there).
        device: of the tensors.

    Returns:
        Tiling. It is made on the host once; selectors then take it at every step.

    Raises:
        ValueError: names the argument, what was expected and what came.
    """
    grid = _checks.extents("grid", grid, 0)
    cube = _checks.extents("cube", cube, 1)
    prefix = _checks.integers("prefix", prefix, 0)
    suffix = _checks.integers("suffix", suffix, 0)
    return Tiling(grid, cube, prefix, suffix, placement).to(device)


def linear_tiling(tokens, text_tokens=0, *, chunk=128, placement="dense", device="cpu"):
    """Cuts a sequence into chunks that follow each other, and the text after it into chunks of its
    own. Errors as of `tiling`.

    Args:
        tokens, text_tokens: lengths.
        chunk: rows of a tile.
        placement, device: as of `tiling`.
    """
    tokens = _checks.integer("tokens", tokens, 0)
    text_tokens = _checks.integer("text_tokens", text_tokens, 0)
    chunk = _checks.integer("chunk", chunk, 1)
    return tiling(
        (1, 1, tokens), (1, 1, chunk), suffix=[text_tokens], placement=placement, device=device
    )


def static_layout(tiling, row_offsets, columns, heads, batch):
    """The arguments of `kpage.plan` for a graph over tiles in compressed rows, on the CPU.

    Args:
        row_offsets: int64 [H * tiles + 1], or [tiles + 1] for all heads. columns: int32.
        heads, batch: of the plan.
    """
    heads, batch = _checks.integer("heads", heads, 1), _checks.integer("batch", batch, 1)
    of_heads = (row_offsets.shape[0] - 1) // max(tiling.tiles, 1)
    longest = int((row_offsets[1:] - row_offsets[:-1]).max()) if tiling.tiles else 0
    index, nums = _lists.from_csr(
        row_offsets, columns, (1, of_heads, tiling.tiles), min(longest, math.prod(columns.shape))
    )
    index, nums = index.to(tiling.device), nums.to(tiling.device)
    return tiling.layout(index.expand(batch, heads, -1, -1), nums.expand(batch, heads, -1))
