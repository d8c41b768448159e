"""Other block-sparse kernels on the same inputs, each through its released package.

A peer wants its blocks padded to whole tiles: its copies of q, k, v and dO are made outside the
timed part, with zeros in padding. What it returns is compared row by row with KPage.
"""

import importlib
import importlib.metadata

import torch

BLOCK = 128


class Unsupported(Exception):
    pass


class Run:
    """Functions to time, and what they return for the valid rows."""

    def __init__(self, forward, output, forward_backward=None, gradients=None):
        self.forward = forward
        self.output = output  # -> O [1, H, valid rows, D]
        self.forward_backward = forward_backward
        self.gradients = gradients  # -> dQ, dK, dV, the same


class Problem:
    """A case whose Q and K/V have one partition, shared by all heads."""

    def __init__(self, case):
        if case.host["kv_block_sizes"] is not None or case.host["q_block_sizes"].dim() != 1:
            raise Unsupported("partitions of their own for heads, or for keys")
        self.case = case
        device = case.q.device
        self.sizes = case.host["q_block_sizes"].to(device)  # [N]
        self.nums = case.nums.to(device)  # [H, N]
        ids = case.index.to(device)
        valid = torch.arange(ids.shape[-1], device=device) < self.nums[..., None]
        ids = torch.where(valid, ids, case.q_blocks).sort(-1).values
        self.index = torch.where(ids == case.q_blocks, 0, ids).int().contiguous()  # ascending
        self.full = bool((self.sizes == BLOCK).all())
        self.equal_lists = bool((self.nums == ids.shape[-1]).all())
        rows = torch.arange(BLOCK, device=device)
        self._valid = rows < self.sizes[:, None]  # [N, 128]
        offsets = case.q_offsets[0].to(device)
        self._own_rows = (offsets[:, None] + rows)[self._valid]

    def valid_rows(self, x):
        return x.detach()[:, :, self._own_rows]

    def tile_rows(self):
        """Rows of the valid rows where every block has a tile of 128 rows, and all rows."""
        blocks = torch.arange(len(self.sizes), device=self.sizes.device)
        rows = torch.arange(BLOCK, device=self.sizes.device)
        return (blocks[:, None] * BLOCK + rows)[self._valid], len(self.sizes) * BLOCK

    def inputs(self, rows, count):
        """q, k, v, dO [1, H, count, D], the valid rows at `rows`, zeros elsewhere."""
        made = []
        for x in (self.case.q, self.case.k, self.case.v, self.case.d_o):
            out = x.new_zeros(*x.shape[:2], count, x.shape[3])
            out[:, :, rows] = self.valid_rows(x)
            made.append(out)
        return made

    def halves(self):
        """Blocks cut in tiles of 64 rows, empty ones dropped.

        Returns lists [H, M, K], counts [H, M], sizes [M], the valid rows' places and all rows.
        """
        device = self.sizes.device
        blocks = len(self.sizes)
        two = (self.sizes > 64).int()
        first = torch.cumsum(1 + two, 0) - (1 + two)
        parent = torch.repeat_interleave(torch.arange(blocks, device=device), 1 + two)
        second = torch.arange(len(parent), device=device) != first[parent]
        sizes = torch.where(second, self.sizes[parent] - 64, self.sizes[parent].clamp(max=64))
        ids = self.index.long()
        valid = torch.arange(ids.shape[-1], device=device) < self.nums[..., None]
        none = len(parent)
        head = torch.where(valid, first[ids], none)
        tail = torch.where(valid & (two[ids] > 0), first[ids] + 1, none)
        lists = torch.stack([head, tail], -1).flatten(-2).sort(-1).values
        counts = (lists < none).sum(-1).int()
        longest = max(1, int(counts.max()))
        lists = torch.where(lists < none, lists, 0).int()[:, parent, :longest].contiguous()
        rows = torch.arange(64, device=device) < sizes[:, None]
        places = (64 * torch.arange(len(parent), device=device))[:, None]
        places = (places + torch.arange(64, device=device))[rows]
        return lists, counts[:, parent].contiguous(), sizes.int(), places, 64 * len(parent)


class Bsa:
    """NVIDIA's block-sparse attention in the cuDNN frontend."""

    name = "NVIDIA BSA"

    def load(self):
        self.api = importlib.import_module("cudnn").BSA
        return importlib.metadata.version("nvidia-cudnn-frontend")

    def configurations(self, problem):
        yield f"{self.name} blk128", lambda: self._tiles(problem)
        yield f"{self.name} blk64, halves", lambda: self._halves(problem)

    def _tiles(self, problem):
        rows, count = problem.tile_rows()
        return self._run(
            problem.inputs(rows, count),
            rows,
            BLOCK,
            problem.index,
            None if problem.equal_lists else problem.nums.int(),
            None if problem.full else problem.sizes,
        )

    def _halves(self, problem):
        lists, counts, sizes, rows, count = problem.halves()
        equal = bool((counts == lists.shape[-1]).all())
        return self._run(
            problem.inputs(rows, count),
            rows,
            64,
            lists,
            None if equal else counts,
            None if bool((sizes == 64).all()) else sizes,
        )

    def _run(self, inputs, rows, block, index, nums, sizes):
        q, k, v, d_o = inputs
        index = index[None]
        nums = None if nums is None else nums[None]

        def forward():
            return self.api.block_sparse_attention_forward(
                q, k, v, index, block_sizes=sizes, q2k_block_nums=nums, sparse_block_size=block
            )

        def forward_backward():
            out = forward()
            return self.api.block_sparse_attention_backward(
                d_o,
                q,
                k,
                v,
                out["o_tensor"],
                out["lse_tensor"],
                index,
                None,
                sizes,
                nums,
                sparse_block_size=block,
            )

        def gradients():
            got = forward_backward()
            return [got[key][:, :, rows] for key in ("dq_tensor", "dk_tensor", "dv_tensor")]

        return Run(forward, lambda: forward()["o_tensor"][:, :, rows], forward_backward, gradients)


class Fa4:
    """FlashAttention-4's block sparsity: lists of full and of partial blocks, both directions."""

    name = "FlashAttention-4"

    def load(self):
        self.api = importlib.import_module("kpage.bench.fa4")
        return importlib.metadata.version("flash-attn-4")

    def configurations(self, problem):
        yield f"{self.name} blk128", lambda: self._tiles(problem)

    def _tiles(self, problem):
        rows, count = problem.tile_rows()
        q, k, v, d_o = (x.transpose(1, 2).contiguous() for x in problem.inputs(rows, count))
        run = self.api.BlockSparse(problem, BLOCK)

        def gradients():
            return [x.transpose(1, 2)[:, :, rows] for x in run.forward_backward(q, k, v, d_o)]

        return Run(
            lambda: run.forward(q, k, v),
            lambda: run.forward(q, k, v)[0].transpose(1, 2)[:, :, rows],
            lambda: run.forward_backward(q, k, v, d_o),
            gradients,
        )


class Flex:
    """FlexAttention, compiled by torch."""

    name = "FlexAttention"

    def load(self):
        self.api = importlib.import_module("torch.nn.attention.flex_attention")
        self.attend = torch.compile(self.api.flex_attention, dynamic=False)
        return f"torch {torch.__version__}"

    def configurations(self, problem):
        yield f"{self.name} blk128", lambda: self._tiles(problem)

    def _tiles(self, problem):
        if problem.case.q.device.type != "cuda":
            raise Unsupported("a device without its kernels")
        rows, count = problem.tile_rows()
        *tensors, d_o = problem.inputs(rows, count)
        for x in tensors:
            x.requires_grad_()
        blocks = len(problem.sizes)
        valid = torch.zeros(count, dtype=torch.bool, device=rows.device)
        valid[rows] = True
        full, partial = full_and_partial(problem, BLOCK)

        def padded(part):
            counts, ids = part
            wide = ids.new_zeros(*ids.shape[:2], blocks)
            wide[..., : ids.shape[-1]] = ids
            return counts[None], wide[None]

        mask = self.api.BlockMask.from_kv_blocks(
            *padded(partial),
            *padded(full),
            BLOCK_SIZE=BLOCK,
            mask_mod=lambda b, h, q, k: valid[k],
            seq_lengths=(count, count),
        )

        def forward():
            with torch.no_grad():
                return self.attend(*tensors, block_mask=mask)

        def forward_backward():
            out = self.attend(*tensors, block_mask=mask)
            return torch.autograd.grad(out, tensors, d_o)

        return Run(
            forward,
            lambda: forward()[:, :, rows],
            forward_backward,
            lambda: [x[:, :, rows] for x in forward_backward()],
        )


def full_and_partial(problem, block):
    """The lists [H, N, Kmax] and their counts [H, N], of whole tiles and of the others."""
    ids = problem.index
    listed = torch.arange(ids.shape[-1], device=ids.device) < problem.nums[..., None]
    whole = (problem.sizes == block)[ids.long()]

    def prefix(selected):
        none = len(problem.sizes)
        kept = torch.where(selected, ids, none).sort(-1).values
        return selected.sum(-1).int(), torch.where(kept == none, 0, kept).int().contiguous()

    return prefix(listed & whole), prefix(listed & ~whole)


PEERS = (Bsa(), Fa4(), Flex())
# Peers without an adapter here.
ABSENT = {
    "FlashInfer": "absent: no adapter yet; its kernels have to be compiled ahead for sm_90a",
    "FastVideo VSA": "absent: no adapter yet; built from source",
    "flex-block-attn": "absent: no adapter yet; it masks no padding",
    "MagiAttention FFA": "absent: no adapter yet; built from source",
    "MIT Block-Sparse-Attention": "absent: no adapter yet; built from source",
}
