"""FlashAttention-4 on padded tiles: imported only where its package is there."""

import cutlass
import torch
from cutlass import cute
from flash_attn.cute import interface, utils
from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch

from kpage.bench.problem import BLOCK


@cute.jit
def _is_valid_key(batch, head, m_idx, n_idx, seqlen_info, aux_tensors):
    tile = utils.scalar_to_ssa(128, cutlass.Int32)
    block = n_idx // tile
    rows = utils.scalar_to_ssa(aux_tensors[0][block[0]], cutlass.Int32)
    return (n_idx % tile) < rows


@cute.jit
def _is_valid_key_of_64(batch, head, m_idx, n_idx, seqlen_info, aux_tensors):
    tile = utils.scalar_to_ssa(64, cutlass.Int32)
    block = n_idx // tile
    rows = utils.scalar_to_ssa(aux_tensors[0][block[0]], cutlass.Int32)
    return (n_idx % tile) < rows


class BlockSparse:
    """Lists of whole and of partial tiles in both directions, and the mask of the partial ones.
    Tiles have the same sizes in all heads."""

    def __init__(self, tiles):
        self.tiles = tiles
        mask = _is_valid_key if tiles.block == BLOCK else _is_valid_key_of_64
        sizes = tiles.kv_sizes[0].contiguous()
        self.mask = {} if tiles.full else {"mask_mod": mask, "aux_tensors": [sizes]}
        self.plan()

    def plan(self):
        self.lists = self._tensors(*self.tiles.whole_and_partial())
        # Backward has tiles of 128 keys only.
        self.reverse = self._reverse() if self.tiles.block == BLOCK else None

    def _tensors(self, whole, partial):
        return BlockSparseTensorsTorch(
            full_block_idx=whole[0][None].contiguous(),
            full_block_cnt=whole[1][None].contiguous(),
            mask_block_idx=partial[0][None].contiguous(),
            mask_block_cnt=partial[1][None].contiguous(),
            block_size=(self.tiles.block, self.tiles.block),
        )

    def _reverse(self):
        """For each tile of keys the query tiles that list it."""
        graph = self.tiles.map().transpose(1, 2)
        counts = graph.sum(-1).int()
        order = torch.arange(graph.shape[2], dtype=torch.int32, device=graph.device)
        lists = torch.where(graph, order, len(order)).sort(-1).values[..., : int(counts.max())]
        lists = torch.where(lists == len(order), 0, lists).int()
        whole = self.tiles.kv_sizes == self.tiles.block
        return self._tensors(
            (lists, torch.where(whole, counts, 0)), (lists, torch.where(whole, 0, counts))
        )

    def forward(self, q, k, v):
        """q, k, v [1, S, H, D] -> O, LSE."""
        return interface._flash_attn_fwd(
            q, k, v, block_sparse_tensors=self.lists, return_lse=True, **self.mask
        )[:2]

    def forward_backward(self, q, k, v, d_o):
        o, lse = self.forward(q, k, v)
        return interface._flash_attn_bwd(
            q, k, v, o, d_o, lse, block_sparse_tensors=self.reverse, **self.mask
        )[:3]


def dense_forward(q, k, v):
    return interface._flash_attn_fwd(q, k, v, return_lse=True)[:2]


def dense_forward_backward(q, k, v, d_o):
    o, lse = dense_forward(q, k, v)
    return interface._flash_attn_bwd(q, k, v, o, d_o, lse)[:3]
