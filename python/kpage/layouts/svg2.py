"""SVG2, Sparse VideoGen 2 (arXiv 2505.18875): tokens of a head are clustered by k-means, queries and
keys apart, and each query cluster attends to the key clusters that hold most of its probability.

Clusters lie end to end, each from any row: a head's tokens are permuted and nothing is padded. A
cluster of n rows is n // 128 full blocks and a remainder. Shapes follow from the numbers of tokens
and clusters alone."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F

from kpage.layouts import _checks, _ops
from kpage.tokens import TokenOrder

_CHUNK = 1 << 25  # scores of rows against centroids that are held at a time


class _Clusters(NamedTuple):
    labels: torch.Tensor  # int32 [B, H, S]
    sizes: torch.Tensor  # int32 [B, H, C]
    centroids: torch.Tensor  # [B, H, C, D], dtype of the rows
    order: TokenOrder | None = None  # by label, as `select` makes it where there is none


class Clusters(_Clusters):
    """The clusters of each head: int32 `labels` [B, H, S], int32 `sizes` [B, H, C], `centroids`
    [B, H, C, D] in the dtype of the rows, and the TokenOrder by label, None where `select` is to
    make it."""

    __slots__ = ()

    def _replace(self, **fields):
        # The order is of the labels that it came with.
        if "labels" in fields:
            fields.setdefault("order", None)
        return super()._replace(**fields)


class Permuted(NamedTuple):
    """A layout over permuted rows, and the permutations of each head of each batch element, the
    latter of as many key/value heads as k has:

    q = kpage.tile(q, made.q_order), k and v by kv_order, and at the end
    out = kpage.untile(out, made.q_order)
    """

    arguments: dict  # of kpage.plan
    q_order: TokenOrder
    kv_order: TokenOrder


# --- Clusters ---------------------------------------------------------------------------------


def kmeans(x, clusters=None, *, centroids=None, iterations=None, tolerance=1e-4, generator=None):
    """Lloyd's k-means with Euclidean distance, each head apart.

    An iteration labels each row with its nearest centroid (ties: the lower) and moves each centroid
    to the mean of its rows; an empty cluster keeps its centroid. Centroids are in the dtype of x, and
    sums in float32, in a fixed order. Once no centroid of any head moves by `tolerance`, they
    stay; the iterations run all the same, since nothing waits for the device.

    A first call draws its rows at random and with repetition, so two calls differ unless a generator
    of the same seed goes in (or `torch.manual_seed` comes before). Of equal centroids the lower gets
    the rows, so more clusters than distinct rows are no error: those left over are empty.

    Args:
        x: [B, H, S, D], rows in any order.
        clusters: how many, at a first call, which starts from rows drawn at random.
        centroids: [B, H, C, D] to start from, of an earlier call: a warm start.
        iterations: None: the system's 50 for a first call and 2 for a warm start.
        tolerance: least move of a centroid.
        generator: of the draw, on x's device. None: torch's default, which goes on with each call.

    Returns:
        Clusters. Labels are those of the last iteration's centroids before they moved.
    """
    _checks.floats("x", x, "B H S D")
    batch, heads, rows, dim = x.shape
    if (clusters is None) == (centroids is None):
        raise ValueError("centroids: expected either clusters or centroids")
    if centroids is None:
        clusters = _checks.integer("clusters", clusters, 1)
        if rows == 0:
            raise ValueError("x: expected at least one row to start from, got none")
        drawn = torch.randint(
            rows, (batch, heads, clusters, 1), device=x.device, generator=generator
        )
        centroids = x.detach().gather(2, drawn.expand(-1, -1, -1, dim))
        iterations = 50 if iterations is None else iterations
    else:
        _checks.floats("centroids", centroids, "B H C D", like=x)
        if centroids.shape[:2] != x.shape[:2] or centroids.shape[3] != dim:
            raise ValueError(
                f"centroids: expected shape [{batch}, {heads}, C, {dim}], got "
                f"{list(centroids.shape)}"
            )
        if centroids.shape[2] == 0:
            raise ValueError("centroids: expected at least one, got none")
        iterations = 2 if iterations is None else iterations
    iterations = _checks.integer("iterations", iterations, 1)
    tolerance = _checks.number("tolerance", tolerance)
    x, centroids = x.detach(), centroids.detach().to(x.dtype)
    settled = torch.zeros((), dtype=torch.bool, device=x.device)
    for _ in range(iterations):
        labels = nearest(x, centroids)
        order, places, sizes, offsets = _ops.cluster_order(labels, centroids.shape[2])
        moved, shifts = _ops.cluster_means(x, order, sizes, offsets, centroids)
        settled = settled | (shifts < tolerance).all()
        centroids = torch.where(settled, centroids, moved)
    return Clusters(labels, sizes, centroids, TokenOrder(order, places))


def nearest(x, centroids):
    """int32 [B, H, S]: the nearest centroid of each row, the lower where several are.

    Args:
        x: [B, H, S, D]. centroids: [B, H, C, D] in its dtype. Products are summed in float32. One
            that is NaN counts as -inf: a row with a NaN is as far from all and has the first label,
            and to a centroid with a NaN no row is near.
    """
    half = x.dtype in (torch.bfloat16, torch.float16)
    if x.is_cuda and half and x.shape[-1] in (64, 128):
        return _ops.nearest_centroids(x, centroids)
    flat, centres = x.flatten(0, 1), centroids.flatten(0, 1).float()
    # Of |x - c|^2 = |x|^2 - 2 (x . c - |c|^2 / 2) only the bracket depends on c.
    squares = centres.square().sum(-1)[:, None] / 2
    step = max(_CHUNK // max(centres.shape[0] * centres.shape[1], 1), 1)
    labels = [
        _nan_is_least((part.float() @ centres.mT).sub_(squares)).argmax(-1)
        for part in flat.split(step, 1)
    ]
    return torch.cat(labels, 1).to(torch.int32).unflatten(0, x.shape[:2])


# --- Selection --------------------------------------------------------------------------------


def cluster_map(q, k, *, top_p=0.9, min_ratio=0.1):
    """Which key clusters a query cluster attends to.

    P_ij = n_j exp(S_ij) / sum_l n_l exp(S_il), with S the products of centroids over sqrt(D) and n
    the sizes of the key clusters. S is in the dtype of the centroids (products rounded, and rounded
    again over sqrt(D)), P is computed from it in float32 and then rounded to that dtype too, as in
    the released code. Of a row in descending order (ties: the lower cluster first) those are kept up
    to and with the one that takes the sum over `top_p`, and the first max(int(min_ratio * C), 1) in
    any case. Sums of the rounded P are exact, in units of 2^-30.

    Args:
        q, k: Clusters of the queries and the keys; k may have fewer heads.
        top_p, min_ratio: in [0, 1].

    Returns:
        bool [B, H, Cq, Ck].
    """
    for name, clusters in (("q", q), ("k", k)):
        _checks.made(name, clusters, Clusters)
    top_p, min_ratio = _checks.share("top_p", top_p), _checks.share("min_ratio", min_ratio)
    group = _checks.queries_keys(q.centroids, k.centroids, names=("q.centroids", "k.centroids"))
    _checks.ints("k.sizes", k.sizes, "B H C", like=k.centroids)
    _checks.sized("k.sizes", k.sizes, k.centroids.shape[:3])
    keys, sizes = (x.repeat_interleave(group, dim=1) for x in (k.centroids, k.sizes))
    scores = _nan_is_least(q.centroids @ keys.mT / math.sqrt(keys.shape[-1]))
    floor = max(int(min_ratio * sizes.shape[-1]), 1)
    return _ops.leading_map(scores, top_p, counts=sizes, least=floor, crosses=True)


def select(q, k, *, top_p=0.9, min_ratio=0.1, text=None, max_list=None):
    """The layout of clustered heads.

    Args:
        q, k: Clusters of the queries and the keys, of the same number of tokens; k may have fewer
            heads.
        top_p, min_ratio: as of `cluster_map`.
        text: (prompt, unused) tokens that follow the clustered ones and are not permuted: all attend
            to the prompt and it to all but the unused tokens, which see only themselves. The system
            does so with HunyuanVideo's context.
        max_list: Kmax of the plan, in blocks. None: as many as there may be, which costs memory in
            proportion; a list that is longer is an error of `kpage.plan`.

    Returns:
        Permuted: its `arguments` are those of `kpage.plan`, over rows in the order of its
        permutations.
    """
    for name, clusters in (("q", q), ("k", k)):
        _check_clusters(name, clusters)
    chosen = cluster_map(q, k, top_p=top_p, min_ratio=min_ratio)
    if max_list is not None:
        max_list = _checks.integer("max_list", max_list, 0)
    group = _checks.grouped(q.centroids, k.centroids)
    if q.labels.shape[2] != k.labels.shape[2]:
        raise ValueError(
            f"k: expected the {q.labels.shape[2]} tokens of q, got {k.labels.shape[2]}"
        )
    text = [] if text is None else _checks.integers("text", text, 0)
    if len(text) not in (0, 2):
        raise ValueError(f"text: expected (prompt, unused), got {len(text)} lengths")
    k_sizes = k.sizes.repeat_interleave(group, dim=1)
    if text:
        chosen = _with_text(chosen)
    tokens = q.labels.shape[2] + sum(text)
    q_sizes, k_sizes = _append(q.sizes, text), _append(k_sizes, text)
    q_cluster, *q_blocks = _ops.cluster_blocks(q_sizes, most_blocks(tokens, q_sizes.shape[-1]))
    k_cluster, *k_blocks = _ops.cluster_blocks(k_sizes, most_blocks(tokens, k_sizes.shape[-1]))
    # Every block of a query cluster gets all blocks of the key clusters that it attends to.
    index, nums = _ops.lists_of_map(
        chosen, max_list, row_of_list=q_cluster, column_of_id=k_cluster
    )
    arguments = {
        "q2k_block_index": index,
        "q2k_block_nums": nums,
        "q_block_sizes": q_blocks[0],
        "kv_block_sizes": k_blocks[0],
        "q_block_offsets": q_blocks[1],
        "kv_block_offsets": k_blocks[1],
    }
    return Permuted(arguments, *(_token_order(x, sum(text)) for x in (q, k)))


def _nan_is_least(scores):
    """-inf for NaN, in place."""
    return scores.nan_to_num_(-math.inf, math.inf, -math.inf)


def _check_clusters(name, clusters):
    _checks.made(name, clusters, Clusters)
    centroids = _checks.floats(f"{name}.centroids", clusters.centroids, "B H C D")
    labels = _checks.ints(f"{name}.labels", clusters.labels, "B H S", like=centroids)
    sizes = _checks.ints(f"{name}.sizes", clusters.sizes, "B H C", like=centroids)
    _checks.sized(f"{name}.sizes", sizes, centroids.shape[:3])
    _checks.sized(f"{name}.labels", labels, (*centroids.shape[:2], labels.shape[2]))


def most_blocks(tokens, clusters):
    """The most blocks that clusters of so many tokens, some maybe empty, are split into."""
    used = min(tokens, clusters)
    return used + (tokens - used) // 128


def _with_text(chosen):
    """Two clusters more each way: the prompt, and what is unused of the text."""
    wider = F.pad(chosen, (0, 2, 0, 2))
    number = torch.arange(wider.shape[-1], device=wider.device)
    prompt, unused = (number == wider.shape[-1] - 2), (number == wider.shape[-1] - 1)
    rows = torch.arange(wider.shape[-2], device=wider.device)[:, None]
    row_prompt, row_unused = (rows == wider.shape[-2] - 2), (rows == wider.shape[-2] - 1)
    return wider | ((prompt | row_prompt) & ~unused & ~row_unused) | (unused & row_unused)


def _append(sizes, text):
    if not text:
        return sizes
    tail = torch.stack([torch.full_like(sizes[..., 0], length) for length in text], -1)
    return torch.cat([sizes, tail], -1)


def _token_order(clusters, text_tokens):
    """Tokens by cluster, in their own order within one; text last."""
    order = clusters.order
    if order is None:
        order = TokenOrder(*_ops.cluster_order(clusters.labels, clusters.sizes.shape[2])[:2])
    if text_tokens == 0:
        return order
    first = clusters.labels.shape[2]
    text = torch.arange(
        first, first + text_tokens, dtype=torch.int32, device=clusters.labels.device
    )
    return TokenOrder(*(torch.cat([x, text.expand(*x.shape[:-1], -1)], -1) for x in order))
