"""The selectors' ops themselves: rules, fake kernels, gradients, errors."""

import math

import kpage
import layouts_reference as rules
import pytest
import torch

ops = torch.ops.kpage
steps = kpage.layouts._ops
SIZES = [1, 15, 16, 17, 63, 64, 65, 127, 128, 1000]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("columns", SIZES)
def test_top_k(columns, dtype):
    generator = torch.Generator().manual_seed(columns)
    scores = (3 * torch.randn(2, 3, columns, generator=generator)).round().to(dtype)
    scores[0, 0] = -0.0
    scores[0, 0, ::2] = 0.0
    scores[1, 1, ::3] = math.nan
    scores[1, 2] = math.nan
    for keep in {1, max(columns // 3, 1), columns}:
        got = steps.top_k(scores, keep)
        for row, found in zip(scores.flatten(0, 1), got.flatten(0, 1), strict=True):
            values = [-math.inf if math.isnan(x) else x for x in row.tolist()]
            assert found.tolist() == rules.best(values, keep)


def test_top_k_keeps_all_there_are():
    assert steps.top_k(torch.zeros(2, 3), 9).tolist() == [[0, 1, 2]] * 2
    assert steps.top_k(torch.zeros(2, 3), 0).shape == (2, 0)
    assert steps.top_k(torch.zeros(0, 3), 2).shape == (0, 2)


def leaders(weights, limit, least, crosses):
    """Columns of one row by a plain loop over exact sums of whole units of 2^-30."""
    order = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    total, kept = 0, []
    for place, i in enumerate(order):
        before, total = total, total + round(weights[i] * 2**30)
        if place < least or (before if crosses else total) <= math.floor(limit * 2**30):
            kept.append(i)
    return sorted(kept)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("crosses", [True, False])
@pytest.mark.parametrize("columns", SIZES)
def test_leading_map(columns, crosses, dtype):
    generator = torch.Generator().manual_seed(columns)
    weights = (2 * torch.randn(2, 3, columns, generator=generator)).round().softmax(-1).to(dtype)
    weights[0, 0] = 0.0
    weights[1, 1, ::2] = 0.0
    for limit, least in ((0.0, 0), (0.0, 1), (0.5, 0), (0.9, columns // 2), (1.0, 0), (0.2, columns)):
        got = steps.leading_map(weights, limit, least=least, crosses=crosses)
        for row, found in zip(weights.flatten(0, 1), got.flatten(0, 1), strict=True):
            expected = leaders(row.tolist(), limit, least, crosses)
            assert found.nonzero()[:, 0].tolist() == expected


def test_leading_map_of_scores():
    # Equal scores: weights are counts over their sum, exact.
    counts = torch.tensor([[4, 0, 8, 4], [16, 0, 0, 0]], dtype=torch.int32)
    scores = torch.full((2, 1, 4), 3.0)
    got = steps.leading_map(scores, 0.5, counts=counts, crosses=True)
    assert got[:, 0].tolist() == [[True, False, True, False], [True, False, False, False]]
    got = steps.leading_map(scores, 0.5, counts=counts)
    assert got[:, 0].tolist() == [[False, False, True, False], [False] * 4]


def test_leading_map_takes_no_weight_from_what_is_none():
    weights = torch.tensor([[math.nan, 0.5, -1.0, 0.5]])
    assert steps.leading_map(weights, 0.5).tolist() == [[False, True, False, False]]
    assert steps.leading_map(weights, 0.0, least=9).all()
    assert steps.leading_map(weights[:, :0], 0.5).shape == (1, 0)


@pytest.mark.parametrize("clusters", [1, 6, 300])
@pytest.mark.parametrize("rows", [0, *SIZES])
def test_cluster_order(rows, clusters):
    generator = torch.Generator().manual_seed(rows)
    labels = torch.randint(0, clusters, (2, 3, rows), generator=generator).to(torch.int32)
    order, places, sizes, offsets = steps.cluster_order(labels, clusters)
    assert torch.equal(order, labels.argsort(dim=-1, stable=True).to(torch.int32))
    assert torch.equal(places, order.argsort(dim=-1).to(torch.int32))
    for row, found in zip(labels.flatten(0, 1), sizes.flatten(0, 1), strict=True):
        assert torch.equal(found, row.bincount(minlength=clusters).int())
    assert torch.equal(offsets, sizes.cumsum(-1).int() - sizes)


def test_labels_outside_count_as_the_nearest():
    order, _, sizes, _ = steps.cluster_order(torch.tensor([7, -3, 1, 0], dtype=torch.int32), 2)
    assert order.tolist() == [1, 3, 0, 2] and sizes.tolist() == [2, 2]


def test_cluster_means():
    x = torch.randn(2, 3, 200, 8).to(torch.bfloat16)
    labels = torch.randint(0, 5, (2, 3, 200)).to(torch.int32)
    centroids = torch.randn(2, 3, 6, 8).to(torch.bfloat16)
    order, _, *parts = steps.cluster_order(labels, 6)
    for rows in (x, x.transpose(1, 2).contiguous().transpose(1, 2)):
        means, shifts = steps.cluster_means(rows, order, *parts, centroids)
        for c in range(5):
            mine = (labels == c)[..., None]
            expected = torch.where(mine, x.double(), 0.0).sum(2) / mine.sum(2)
            torch.testing.assert_close(means[:, :, c].double(), expected, atol=1e-3, rtol=1e-2)
        assert torch.equal(means[:, :, 5], centroids[:, :, 5])  # it is empty
        moved = (means.double() - centroids.double()).norm(dim=-1)
        torch.testing.assert_close(shifts.double(), moved, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("room", [0, 3, 20])
def test_cluster_blocks(room):
    sizes = torch.tensor([[0, 128, 300, 0, 1], [129, 0, 0, 0, 0]], dtype=torch.int32)
    expected = (
        [(1, 128, 0), (2, 128, 128), (2, 128, 256), (2, 44, 384), (4, 1, 428)],
        [(0, 128, 0), (0, 1, 128)],
    )
    got = steps.cluster_blocks(sizes, room)
    for row, blocks in enumerate(expected):
        padded = (blocks + [(-1, 0, 0)] * room)[:room]
        assert list(zip(*(x[row].tolist() for x in got), strict=True)) == padded


def test_lists_of_rows_and_columns():
    block_map = torch.rand(2, 4, 5) < 0.5
    rows = torch.tensor([[0, 3, -1, 3, 2, 4], [1, 1, 0, 0, 0, -1]], dtype=torch.int32)
    columns = torch.tensor([[4, 4, 0, -1, 2, 1, 9], [0, 1, 2, 3, 4, 4, 4]], dtype=torch.int32)
    for room in (0, 2, 7):
        index, nums = steps.lists_of_map(
            block_map, room, row_of_list=rows, column_of_id=columns
        )
        for group in range(2):
            for place, row in enumerate(rows[group].tolist()):
                ids = [
                    i
                    for i, column in enumerate(columns[group].tolist())
                    if 0 <= row < 4 and 0 <= column < 5 and block_map[group, row, column]
                ]
                assert nums[group, place] == len(ids)
                kept = (ids + [0] * room)[:room]
                assert index[group, place].tolist() == kept


def test_opcheck():
    tiling = kpage.layouts.tiling((3, 5, 7), (2, 4, 4))
    x = torch.randn(1, 2, tiling.rows + 9, 16, requires_grad=True)
    blocks = (tiling.block_sizes, tiling.block_offsets, tiling.block_of_row)
    torch.library.opcheck(ops.block_sums.default, (x, *blocks))
    torch.library.opcheck(ops.top_k.default, (torch.randn(3, 7), 2))
    torch.library.opcheck(ops.lists_of_map.default, (torch.rand(3, 7) < 0.5, 4))
    rows = torch.tensor([[0, 2, 1]], dtype=torch.int32)
    torch.library.opcheck(ops.lists_of_map.default, (torch.rand(1, 3, 7) < 0.5, 4, rows, rows))
    torch.library.opcheck(ops.leading_map.default, (torch.rand(3, 7), None, 0.5, 1, True))
    order, _, *parts = ops.cluster_order(rows[None], 3)
    torch.library.opcheck(ops.cluster_order.default, (rows[None], 3))
    means = (torch.rand(1, 1, 3, 8), order, *parts, torch.rand(1, 1, 3, 8))
    torch.library.opcheck(ops.cluster_means.default, means)
    torch.library.opcheck(ops.cluster_blocks.default, (rows, 5))


ROW = torch.randn(3, 7)
ONE = torch.zeros(1, 1, 3, 64, dtype=torch.bfloat16)
THREE = torch.zeros(3, dtype=torch.int32)
ERRORS = [
    (lambda: ops.top_k(ROW, 8), "keep: expected 0 to the 7 columns of scores, got 8"),
    (lambda: ops.top_k(ROW, -1), "keep: expected 0 to the 7 columns of scores, got -1"),
    (lambda: ops.top_k(ROW.t(), 2), "scores: expected a contiguous tensor"),
    (lambda: ops.top_k(ROW.int(), 2), "scores: expected Float, got Int"),
    (lambda: ops.top_k(ROW[0, 0], 1), "scores: expected at least 1 dimension"),
    (lambda: ops.lists_of_map(ROW, 2), "map: expected Bool, got Float"),
    (lambda: ops.lists_of_map(ROW > 0, -1), "max_list: expected at least 0, got -1"),
    (lambda: ops.lists_of_map(ROW > 0, 2, THREE.long()), "row_of_list: expected Int, got Long"),
    (lambda: ops.lists_of_map((ROW > 0)[None], 2, None, ROW[0, 0]), "column_of_id: expected at le"),
    (lambda: ops.leading_map(ROW, None, 1.5, 0, True), "limit: expected a number in"),
    (lambda: ops.leading_map(ROW, None, 0.5, 8, True), "least: expected 0 to the 7 columns, got 8"),
    (lambda: ops.leading_map(ROW, THREE, 0.5, 1, True), "counts: expected 7 elements, got 3"),
    (lambda: ops.leading_map(ROW.double(), None, 0.5, 1, True), "scores: expected Float, got Dou"),
    (lambda: ops.cluster_order(ROW, 3), "labels: expected Int, got Float"),
    (lambda: ops.cluster_order(THREE, 0), "clusters: expected at least 1, got 0"),
    (lambda: ops.cluster_means(ONE, THREE, THREE, THREE[:2], ONE), "offsets: expected 3 elements"),
    (lambda: ops.cluster_means(ONE, THREE[1:], THREE, THREE, ONE), "order: expected 3 elements"),
    (lambda: ops.cluster_means(ONE, *[THREE] * 3, ONE.float()), "centroids: expected BFloat16"),
    (lambda: ops.cluster_blocks(THREE, -1), "blocks: expected at least 0, got -1"),
    (lambda: ops.block_sums(ONE, ROW[0], THREE, None), "sizes: expected Int, got Float"),
    (lambda: ops.block_sums(ONE, THREE, THREE[:2], None), "offsets: expected 3 elements"),
    (lambda: ops.block_sums(ONE, THREE[None], THREE, None), "sizes: expected 1 or 3 dim"),
    (lambda: ops.nearest_centroids(ONE, ONE.float()), "centroids: expected BFloat16"),
]


@pytest.mark.parametrize("call, message", ERRORS)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_nearest_centroids_are_for_cuda():
    with pytest.raises(RuntimeError, match="CUDA devices only"):
        ops.nearest_centroids(ONE, ONE)
