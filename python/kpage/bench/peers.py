"""Other kernels on the same inputs, each through its released package.

A peer wants its blocks padded to whole tiles: its copies of q, k, v and dO are made outside the
timed part, with zeros in padding. So are its lists; what building them takes is told apart. What a
peer returns is compared row by row with KPage.
"""

import importlib
import importlib.metadata

import torch

from kpage.bench.problem import BLOCK


class Unsupported(Exception):
    """What a peer does not do, so that it is no failure."""


class Run:
    """Functions to time, and what they return for the valid rows [rows, D]."""

    def __init__(self, forward, output, forward_backward=None, gradients=None, plan=None):
        self.forward = forward
        self.output = output  # -> O
        self.forward_backward = forward_backward
        self.gradients = gradients  # -> dQ, dK, dV
        self.plan = plan  # builds what the peer derives from the layout; None: nothing


def _flat(x, places):
    """Rows of [1, H, S, D] as [rows, D]."""
    return x.detach()[0].flatten(0, 1)[places]


class Peer:
    devices = ("cuda",)  # types that it has kernels for


class Bsa(Peer):
    """NVIDIA's block-sparse attention in the cuDNN frontend. Tiles of 128 or 64 rows; valid counts
    of key tiles. Lists in the other direction are built inside each backward pass."""

    name = "NVIDIA BSA"

    def load(self):
        self.api = importlib.import_module("cudnn").BSA
        return importlib.metadata.version("nvidia-cudnn-frontend")

    def configurations(self, problem):
        yield f"{self.name} blk128, no sizes", lambda: self._run(problem, problem.tiles(), None)
        yield f"{self.name} blk128, sizes", lambda: self._with_sizes(problem, problem.tiles())
        yield f"{self.name} blk64, halves", lambda: self._with_sizes(problem, problem.halves())

    def _with_sizes(self, problem, tiles):
        if tiles.full and tiles.block == 64:
            return self._run(problem, tiles, None)
        one = problem.shared_sizes
        return self._run(problem, tiles, tiles.kv_sizes[0] if one else tiles.kv_sizes[None])

    def _run(self, problem, tiles, sizes):
        q, k, v, d_o = problem.inputs(tiles)
        index = tiles.lists[None]
        nums = None if tiles.equal_lists else tiles.counts[None]
        empty = bool((tiles.counts == 0).any())

        def forward():
            return self.api.block_sparse_attention_forward(
                q,
                k,
                v,
                index,
                block_sizes=sizes,
                q2k_block_nums=nums,
                sparse_block_size=tiles.block,
                allow_empty_block_nums=empty,
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
                sparse_block_size=tiles.block,
            )

        def gradients():
            got = forward_backward()
            places = (tiles.q_places, tiles.kv_places, tiles.kv_places)
            keys = ("dq_tensor", "dk_tensor", "dv_tensor")
            return [_flat(got[key], at) for key, at in zip(keys, places, strict=True)]

        backward = (forward_backward, gradients) if problem.shared_sizes else (None, None)
        return Run(forward, lambda: _flat(forward()["o_tensor"], tiles.q_places), *backward)


class Fa4(Peer):
    """FlashAttention-4's block sparsity: lists of whole and of partial tiles in both directions,
    the valid rows of the partial ones by a mask function."""

    name = "FlashAttention-4"

    def load(self):
        self.api = importlib.import_module("kpage.bench.fa4")
        return importlib.metadata.version("flash-attn-4")

    def configurations(self, problem):
        yield f"{self.name} blk128", lambda: self._run(problem, problem.tiles())
        yield f"{self.name} blk64, halves", lambda: self._run(problem, problem.halves())

    def _run(self, problem, tiles):
        if not problem.shared_sizes:
            raise Unsupported("sizes of their own for heads, or for keys")
        q, k, v, d_o = (x.transpose(1, 2).contiguous() for x in problem.inputs(tiles))
        run = self.api.BlockSparse(tiles)

        def rows(x, places):
            return _flat(x.transpose(1, 2), places)

        def gradients():
            places = (tiles.q_places, tiles.kv_places, tiles.kv_places)
            got = run.forward_backward(q, k, v, d_o)
            return [rows(x, at) for x, at in zip(got, places, strict=True)]

        backward = (lambda: run.forward_backward(q, k, v, d_o), gradients)
        return Run(
            lambda: run.forward(q, k, v),
            lambda: rows(run.forward(q, k, v)[0], tiles.q_places),
            *(backward if run.reverse is not None else (None, None)),
            plan=run.plan,
        )


class Vsa(Peer):
    """FastVideo's kernels of VSA: tiles of 64 rows, on ThunderKittens or Triton; with the empty
    halves of blocks dropped, or with both halves of every block. Lists in the other direction are
    built inside each backward pass."""

    name = "FastVideo VSA"

    def load(self):
        self.api = importlib.import_module("fastvideo_kernel.block_sparse_attn")
        return importlib.metadata.version("fastvideo-kernel")

    def configurations(self, problem):
        for cut, keep_empty in (("halves", False), ("all halves", True)):
            yield (
                f"{self.name} ThunderKittens, {cut}",
                lambda keep=keep_empty: self._compiled(problem, keep),
            )
            yield (
                f"{self.name} Triton, {cut}",
                lambda keep=keep_empty: self._run(problem, self.api.block_sparse_attn_triton, keep),
            )

    def _compiled(self, problem, keep_empty):
        try:
            importlib.import_module("fastvideo_kernel._C.fastvideo_kernel_ops")
        except ImportError as error:
            raise Unsupported(f"its compiled kernels do not load: {error}") from error
        return self._run(problem, self.api.block_sparse_attn_sm90, keep_empty)

    def _run(self, problem, attend, keep_empty):
        if not problem.shared_sizes:
            raise Unsupported("sizes of their own for heads, or for keys")
        tiles = problem.halves(keep_empty)
        *tensors, d_o = problem.inputs(tiles)
        for x in tensors:
            x.requires_grad_()
        lists = (tiles.lists[None], tiles.counts[None], tiles.kv_sizes[0].contiguous())

        def forward():
            with torch.no_grad():
                return attend(*tensors, *lists)[0]

        def forward_backward():
            return torch.autograd.grad(attend(*tensors, *lists)[0], tensors, d_o)

        def gradients():
            places = (tiles.q_places, tiles.kv_places, tiles.kv_places)
            return [_flat(x, at) for x, at in zip(forward_backward(), places, strict=True)]

        return Run(forward, lambda: _flat(forward(), tiles.q_places), forward_backward, gradients)


class Flex(Peer):
    """FlexAttention, compiled by torch: a block mask of whole and partial tiles."""

    name = "FlexAttention"

    def load(self):
        self.api = importlib.import_module("torch.nn.attention.flex_attention")
        self.attend = torch.compile(self.api.flex_attention, dynamic=False)
        return f"torch {torch.__version__}"

    def configurations(self, problem):
        yield f"{self.name} blk128", lambda: self._run(problem, problem.tiles())

    def _run(self, problem, tiles):
        if not problem.shared_sizes:
            raise Unsupported("sizes of their own for heads, or for keys: its mask is too slow")
        *tensors, d_o = problem.inputs(tiles)
        for x in tensors:
            x.requires_grad_()
        valid = torch.arange(tiles.block, device=d_o.device) < tiles.kv_sizes[0][:, None]
        valid = valid.flatten()

        def wide(part):
            lists, counts = part
            out = lists.new_zeros(*lists.shape[:2], tiles.kv_sizes.shape[1])
            out[..., : lists.shape[-1]] = lists
            return counts[None], out[None]

        def build():
            whole, partial = tiles.whole_and_partial()
            return self.api.BlockMask.from_kv_blocks(
                *wide(partial),
                *wide(whole),
                BLOCK_SIZE=tiles.block,
                mask_mod=lambda b, h, q, k: valid[k],
                seq_lengths=(tiles.q_rows, tiles.kv_rows),
            )

        mask = build()

        def forward():
            with torch.no_grad():
                return self.attend(*tensors, block_mask=mask)

        def forward_backward():
            out = self.attend(*tensors, block_mask=mask)
            return torch.autograd.grad(out, tensors, d_o)

        def gradients():
            places = (tiles.q_places, tiles.kv_places, tiles.kv_places)
            return [_flat(x, at) for x, at in zip(forward_backward(), places, strict=True)]

        return Run(
            forward, lambda: _flat(forward(), tiles.q_places), forward_backward, gradients, build
        )


class FlashInfer(Peer):
    """FlashInfer's variable blocks: rows without padding, a page a key row, forward only."""

    name = "FlashInfer"
    WORKSPACE = 512 << 20  # bytes

    def load(self):
        self.api = importlib.import_module("flashinfer.sparse")
        return importlib.metadata.version("flashinfer-python")

    def configurations(self, problem):
        yield f"{self.name} variable blocks", lambda: self._run(problem)

    def _run(self, problem):
        case = problem.case
        heads, dim = case.heads, case.head_dim
        q, k, v = (
            problem.valid_rows(x, side).view(heads, -1, dim)
            for x, side in ((case.q, "q"), (case.k, "kv"), (case.v, "kv"))
        )
        blocks = problem.tiles().map()
        sizes = (problem.q_sizes.int().contiguous(), problem.kv_sizes.int().contiguous())
        memory = torch.empty(self.WORKSPACE, dtype=torch.uint8, device=q.device)
        wrapper = self.api.VariableBlockSparseAttentionWrapper(memory, backend="fa3")

        def plan():
            wrapper.plan(blocks, *sizes, heads, heads, dim, q_data_type=q.dtype)

        plan()

        def forward():
            return wrapper.run(q, k, v)

        return Run(forward, lambda: forward().reshape(-1, dim), plan=plan)


class Ffa(Peer):
    """MagiAttention's FFA: pairs of ranges of rows, all heads in one sequence, without padding. Its
    sorting of pairs, which its own function repeats in every call, counts as planning here."""

    name = "MagiAttention FFA"

    def load(self):
        self.api = importlib.import_module("magi_attention.functional.flex_flash_attn")
        return importlib.metadata.version("magi-attention")

    def configurations(self, problem):
        for load in ("dense", "sparse"):
            yield (
                f"{self.name}, {load} loads",
                lambda sparse=load == "sparse": self._run(problem, sparse),
            )

    def _run(self, problem, sparse):
        case = problem.case
        q, k, v, d_o = (
            problem.valid_rows(x, side)[:, None].contiguous()  # [rows, 1, D]
            for x, side in ((case.q, "q"), (case.k, "kv"), (case.v, "kv"), (case.d_o, "q"))
        )
        shared = {
            "sink": None,
            "sink_layout": "sh",
            "attn_type_map": None,
            "softmax_scale": case.head_dim**-0.5,
            "softcap": 0.0,
            "deterministic": False,
            "sm_margin": 0,
            "auto_range_merge": True,
        }
        passes = {}

        def plan():
            pairs = problem.ranges()
            passes["forward"] = self._forward(pairs, q.dtype, sparse)
            passes["backward"] = self._backward(pairs)

        plan()

        def attend():
            return self.api._flex_flash_attn_forward(
                q, k, v, out=None, lse=None, **shared, **passes["forward"]
            )

        def forward():
            with torch.no_grad():
                return attend()[0]

        def forward_backward():
            with torch.no_grad():
                out, meta = attend()
                got = self.api._flex_flash_attn_backward(
                    d_o, q, k, v, out=out, lse=meta.lse, **shared, **passes["backward"]
                )
                return [x.to(q.dtype) for x in got[:3]]

        return Run(
            forward,
            lambda: forward()[:, 0],
            forward_backward,
            lambda: [x[:, 0] for x in forward_backward()],
            plan,
        )

    def _forward(self, pairs, dtype, sparse):
        outer, q_ranges, k_ranges, _, numbers, count = self.api.merge_ranges(*pairs, None)
        loads = {}
        if sparse:
            keys = ("sparse_load_loop_count", "sparse_load_invalid_count", "equal_k_range_size")
            found = self.api.magi_attn_ext.compute_sparse_load_metadata(
                k_ranges, numbers, count, None, BLOCK
            )
            loads = dict(zip(keys, found, strict=True))
        return {
            "q_ranges": q_ranges,
            "k_ranges": k_ranges,
            "merge_q_ranges": outer,
            "fwd_qk_map": numbers,
            "fwd_unique_count": count,
            "out_type": dtype,
            "disable_fwd_atomic_reduction": True,  # ranges of rows do not overlap
            "ref_block_size": (BLOCK, BLOCK),
            "max_seqlen_q": BLOCK,
            "sparse_load": sparse,
            **loads,
        }

    def _backward(self, pairs):
        outer, k_ranges, q_ranges, _, numbers, count = self.api.merge_ranges(*pairs[::-1], None)
        return {
            **dict.fromkeys(("dq", "dk", "dv", "dsink")),
            **dict.fromkeys(("dq_type", "dk_type", "dv_type"), torch.float32),
            "q_ranges": q_ranges,
            "k_ranges": k_ranges,
            "merge_k_ranges": outer,
            "bwd_kq_map": numbers,
            "bwd_unique_count": count,
            "disable_bwd_dkv_atomic_reduction": True,
        }


PEERS = (Bsa(), Fa4(), Vsa(), Flex(), FlashInfer(), Ffa())
# What is compared, by the names of rows: {configuration: what it does, and what it lacks}.
CONFIGURATIONS = {
    "NVIDIA BSA blk128, no sizes": "whole tiles; padding as valid rows: exact on full blocks",
    "NVIDIA BSA blk128, sizes": "whole tiles and their valid rows; the paper's comparison",
    "NVIDIA BSA blk64, halves": "tiles of 64 rows, empty ones dropped",
    "FlashAttention-4 blk128": "lists of full and of partial tiles",
    "FlashAttention-4 blk64, halves": "the same of tiles of 64 rows, empty ones dropped; its "
    "backward has tiles of 128 only",
    "FastVideo VSA ThunderKittens, halves": "tiles of 64 rows, empty ones dropped",
    "FastVideo VSA ThunderKittens, all halves": "both halves of every block",
    "FastVideo VSA Triton, halves": "tiles of 64 rows, empty ones dropped",
    "FastVideo VSA Triton, all halves": "both halves of every block",
    "FlexAttention blk128": "a block mask of full and of partial tiles, compiled by torch",
    "FlashInfer variable blocks": "rows without padding; has no backward",
    "MagiAttention FFA, dense loads": "a range of keys at a time. Built from "
    "source here; its forward takes 0.3 us a range whatever its size, perhaps by this build",
    "MagiAttention FFA, sparse loads": "rows of several ranges packed in a tile, forward; the "
    "same backward. Built from source",
    "flex-block-attn": "whole tiles",
    "MIT Block-Sparse-Attention": "whole tiles",
}
# Peers without an adapter, and why.
ABSENT = {
    "flex-block-attn": "absent: built from source; masks no padding: not exact on partial blocks",
    "MIT Block-Sparse-Attention": "absent: built from source; masks no padding inside a block",
}
