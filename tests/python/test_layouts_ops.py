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


def test_cluster_sums():
    x = torch.randn(2, 3, 200, 8).to(torch.bfloat16)
    labels = torch.randint(0, 5, (2, 3, 200))
    sizes = torch.nn.functional.one_hot(labels, 6).sum(2).to(torch.int32)
    order = labels.argsort(dim=-1, stable=True).to(torch.int32)
    for rows in (x, x.transpose(1, 2).contiguous().transpose(1, 2)):
        sums = steps.cluster_sums(rows, sizes, order)
        for c in range(6):
            expected = torch.where((labels == c)[..., None], x.double(), 0.0).sum(2)
            torch.testing.assert_close(sums[:, :, c].double(), expected, atol=1e-5, rtol=1e-5)


def test_opcheck():
    tiling = kpage.layouts.tiling((3, 5, 7), (2, 4, 4))
    x = torch.randn(1, 2, tiling.rows + 9, 16, requires_grad=True)
    blocks = (tiling.block_sizes, tiling.block_offsets, tiling.block_of_row)
    torch.library.opcheck(ops.block_sums.default, (x, *blocks, None))
    torch.library.opcheck(ops.top_k.default, (torch.randn(3, 7), 2))
    torch.library.opcheck(ops.lists_of_map.default, (torch.rand(3, 7) < 0.5, 4))


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
    (lambda: ops.block_sums(ONE, ROW[0], THREE, None, None), "sizes: expected Int, got Float"),
    (lambda: ops.block_sums(ONE, THREE, THREE[:2], None, None), "offsets: expected 3 elements"),
    (lambda: ops.block_sums(ONE, THREE[None], THREE, None, None), "sizes: expected 1 or 3 dim"),
    (lambda: ops.block_sums(ONE, THREE, THREE, None, THREE[:2]), "row_of_place: expected 3 el"),
    (lambda: ops.nearest_centroids(ONE, ONE, ROW[0]), "half_squares: expected 3 elements, got 7"),
    (lambda: ops.nearest_centroids(ONE, ONE.float(), ROW[0, :3]), "centroids: expected BFloat16"),
]


@pytest.mark.parametrize("call, message", ERRORS)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_nearest_centroids_are_for_cuda():
    with pytest.raises(RuntimeError, match="CUDA devices only"):
        ops.nearest_centroids(ONE, ONE, ROW[0, :3].contiguous())
