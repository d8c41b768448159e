"""Sampled rows of attention in fp64, from the layout alone."""

import torch


def relative_l2(got, expected):
    got, expected = (torch.cat(x).detach().double() for x in (got, expected))
    return float((got - expected).norm() / expected.norm())


def spread(nonempty, count):
    """`count` of the positions [H, N] where `nonempty`, spread evenly: (head, block) pairs."""
    places = nonempty.nonzero()
    step = max(1, len(places) // count)
    return [tuple(map(int, place)) for place in places[step // 2 :: step][:count]]


class Reference:
    """Query blocks and key/value blocks of a Case, each with all its lists."""

    def __init__(self, case):
        self.case = case
        self.scale = case.head_dim**-0.5

    def _rows(self, sizes, offsets, head, blocks):
        """Valid rows of the blocks, block after block."""
        sizes, offsets = sizes[head, blocks], offsets[head, blocks]
        first = offsets - sizes.cumsum(0) + sizes  # a block's first row, less the rows before it
        rows = torch.repeat_interleave(first, sizes) + torch.arange(int(sizes.sum()))
        return rows.to(self.case.q.device)

    def q_rows(self, head, block):
        return self._rows(self.case.q_sizes, self.case.q_offsets, head, [block])

    def kv_rows(self, head, block):
        return self._rows(self.case.kv_sizes, self.case.kv_offsets, head, [block])

    def q_block(self, head, block):
        """O, LSE, dQ, P and dS of a query block, and its key rows."""
        case = self.case
        rows = self.q_rows(head, block)
        keys = self._rows(case.kv_sizes, case.kv_offsets, head, case.list(head, block))
        q, d_o = (x.detach()[0, head, rows].double() for x in (case.q, case.d_o))
        k, v = (x.detach()[0, head, keys].double() for x in (case.k, case.v))
        scores = self.scale * q @ k.T
        lse = torch.logsumexp(scores, -1)
        p = torch.exp(scores - lse[:, None])
        o = p @ v
        delta = (o * d_o).sum(-1, keepdim=True)
        d_s = p * (d_o @ v.T - delta)
        return o, lse, self.scale * d_s @ k, p, d_s, keys

    def kv_block(self, head, block):
        """dK and dV of a key/value block."""
        case = self.case
        valid = torch.arange(case.index.shape[-1]) < case.nums[head][:, None]
        q_blocks = ((case.index[head] == block) & valid).any(-1).nonzero().flatten().tolist()
        own = self.kv_rows(head, block)
        d_k = torch.zeros(len(own), case.head_dim, dtype=torch.double, device=own.device)
        d_v = torch.zeros_like(d_k)
        for q_block in q_blocks:
            rows = self.q_rows(head, q_block)
            if len(rows) == 0:
                continue
            _, _, _, p, d_s, keys = self.q_block(head, q_block)
            first = int((keys == own[0]).nonzero()[0])
            part = slice(first, first + len(own))
            d_k += self.scale * d_s[:, part].T @ case.q.detach()[0, head, rows].double()
            d_v += p[:, part].T @ case.d_o[0, head, rows].double()
        return d_k, d_v

    def forward_errors(self, o, lse, blocks=6):
        """Relative l2 error of O and the largest error of LSE. o [1, H, Sq, D], lse [1, H, Sq]."""
        case = self.case
        got, expected, lse_error = [], [], 0.0
        for head, block in spread((case.q_sizes > 0) & (case.nums > 0), blocks):
            rows = self.q_rows(head, block)
            exact = self.q_block(head, block)
            got.append(o.detach()[0, head, rows])
            expected.append(exact[0])
            lse_error = max(lse_error, float((lse.detach()[0, head, rows] - exact[1]).abs().max()))
        return {"error": relative_l2(got, expected), "lse_error": lse_error}

    def gradient_errors(self, d_q, d_k, d_v, q_blocks=4, kv_blocks=2):
        """Relative l2 errors of sampled rows, all [1, H, S, D]."""
        case = self.case
        errors = {}
        got, expected = [], []
        for head, block in spread((case.q_sizes > 0) & (case.nums > 0), q_blocks):
            got.append(d_q[0, head, self.q_rows(head, block)])
            expected.append(self.q_block(head, block)[2])
        errors["d_q_error"] = relative_l2(got, expected)
        used = torch.zeros_like(case.kv_sizes, dtype=torch.int64)
        valid = torch.arange(case.index.shape[-1]) < case.nums[..., None]
        used.scatter_add_(
            1, torch.where(valid, case.index, 0).long().flatten(1), valid.long().flatten(1)
        )
        samples = spread((case.kv_sizes > 0) & (used > 0), kv_blocks)
        exact = [self.kv_block(head, block) for head, block in samples]
        for i, (name, x) in enumerate((("d_k_error", d_k), ("d_v_error", d_v))):
            rows = [x[0, head, self.kv_rows(head, block)] for head, block in samples]
            errors[name] = relative_l2(rows, [pair[i] for pair in exact])
        return errors
