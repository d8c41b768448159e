"""FlashAttention-4 on padded tiles: imported only where its package is there."""

import cutlass
import torch
from cutlass import cute
from flash_attn.cute import interface, utils
from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch

from kpage.bench.peers import full_and_partial


@cute.jit
def _is_valid_key(batch, head, m_idx, n_idx, seqlen_info, aux_tensors):
    tile = utils.scalar_to_ssa(128, cutlass.Int32)
    block = n_idx // tile
    rows = utils.scalar_to_ssa(aux_tensors[0][block[0]], cutlass.Int32)
    return (n_idx % tile) < rows


class BlockSparse:
    def __init__(self, problem, block):
        (full_counts, full), (counts, partial) = full_and_partial(problem, block)
        self.lists = self._tensors(counts, partial, full_counts, full, block)
        self.reverse = self._reverse(problem, block)
        masked = {"mask_mod": _is_valid_key, "aux_tensors": [problem.sizes]}
        self.mask = {} if problem.full else masked

    @staticmethod
    def _tensors(counts, partial, full_counts, full, block):
        return BlockSparseTensorsTorch(
            mask_block_cnt=counts[None].contiguous(),
            mask_block_idx=partial[None].contiguous(),
            full_block_cnt=full_counts[None].contiguous(),
            full_block_idx=full[None].contiguous(),
            block_size=(block, block),
        )

    def _reverse(self, problem, block):
        """For each key block the query blocks that list it."""
        ids = problem.index.long()
        heads, blocks, longest = ids.shape
        listed = torch.arange(longest, device=ids.device) < problem.nums[..., None]
        graph = torch.zeros(heads, blocks, blocks + 1, dtype=torch.bool, device=ids.device)
        graph.scatter_(2, torch.where(listed, ids, blocks), True)
        graph = graph[..., :blocks].transpose(1, 2)
        counts = graph.sum(-1).int()
        order = torch.arange(blocks, device=ids.device).expand_as(graph)
        lists = torch.where(graph, order, blocks).sort(-1).values[..., : int(counts.max())]
        lists = torch.where(lists == blocks, 0, lists).int()
        whole = problem.sizes == block
        none = torch.zeros_like(counts)
        return self._tensors(
            torch.where(whole, none, counts), lists, torch.where(whole, counts, none), lists, block
        )

    def forward(self, q, k, v):
        return interface._flash_attn_fwd(
            q, k, v, block_sparse_tensors=self.lists, return_lse=True, **self.mask
        )[:2]

    def forward_backward(self, q, k, v, d_o):
        o, lse = self.forward(q, k, v)
        return interface._flash_attn_bwd(
            q, k, v, o, d_o, lse, block_sparse_tensors=self.reverse, **self.mask
        )[:3]
