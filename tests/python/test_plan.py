"""Plans as objects: figures, copies, files, updates, the backward part."""

import os

import kpage
import pytest
import torch
from reference import random_layout

SIZES = [128, 100, 0, 64, 17]


@pytest.fixture
def layout():
    return random_layout(1, heads=2, q_sizes=SIZES)


def qkv(rows=640, heads=2):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(1, heads, rows, 64, generator=generator).to(torch.bfloat16).requires_grad_()
        for _ in range(3)
    ]


def test_stats_count_pairs(layout):
    stats = kpage.plan(*layout.arguments).stats()
    mask = layout.mask(640, 640)
    assert stats["useful_pairs"] == int(mask.sum())
    sizes = layout.q_sizes
    edges = sum(
        int((sizes[layout.index[0, h, q, : layout.nums[0, h, q]].long()] > 0).sum())
        for h in range(2)
        for q in range(len(SIZES))
        if sizes[q] > 0
    )
    assert stats["whole_block_pairs"] == edges * 128 * 128
    assert stats["efficiency"] == stats["useful_pairs"] / stats["routed_pairs"]
    assert all(type(v) is int for name, v in stats.items() if name != "efficiency")


def test_stats_of_backward_appear_with_it(layout):
    plan = kpage.plan(*layout.arguments)
    assert not plan.has_backward and plan.stats()["backward_pairs"] == 0
    small = plan.nbytes
    plan.build_backward()
    assert plan.has_backward and plan.stats()["backward_pairs"] > 0
    assert plan.nbytes > small


def test_plan_keeps_its_own_copy(layout):
    plan = kpage.plan(*layout.arguments)
    before = plan.dump()
    for t in (layout.index, layout.nums, layout.q_sizes):
        t.fill_(-1)
    assert plan.dump() == before


def test_properties(layout):
    plan = kpage.plan(*layout.arguments)
    assert (plan.batch, plan.heads, plan.q_blocks, plan.kv_blocks) == (1, 2, 5, 5)
    assert plan.max_list == layout.index.shape[-1]
    assert plan.device == torch.device("cpu")
    assert "heads=2" in repr(plan)
    assert plan.to("cpu") is plan


def test_dump_of_one_head(layout):
    plan = kpage.plan(*layout.arguments)
    assert len(plan.dump(0)) < len(plan.dump())
    for number in (2, -1):
        message = f"batch_head: expected a number from 0 to 1, got {number}"
        with pytest.raises(ValueError, match=message):
            plan.dump(number)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_load_does_not_wait_for_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RuntimeError, match="pipe: expected a plan file that can be read"):
        kpage.Plan.load(tmp_path / "pipe")


@pytest.mark.parametrize("with_backward", [False, True])
def test_save_and_load(layout, tmp_path, with_backward):
    plan = kpage.plan(*layout.arguments)
    if with_backward:
        plan.build_backward()
    plan.save(tmp_path / "plan.kpage")
    loaded = kpage.Plan.load(tmp_path / "plan.kpage")
    assert loaded.has_backward == with_backward
    assert loaded.stats() == plan.stats() and loaded.dump() == plan.dump()
    q, k, v = qkv()
    assert torch.equal(kpage.attention(q, k, v, loaded), kpage.attention(q, k, v, plan))


def test_backward_part_is_built_once_and_reused(layout):
    plan = kpage.plan(*layout.arguments)
    q, k, v = qkv()
    assert not plan.has_backward
    kpage.attention(q, k, v, plan).sum().backward()
    built = plan._backward_part()
    assert built is not None
    kpage.attention(q, k, v, plan).sum().backward()
    assert plan._backward_part() is built


def test_backward_part_built_ahead_gives_the_same(layout):
    q, k, v = qkv()
    lazy, ahead = kpage.plan(*layout.arguments), kpage.plan(*layout.arguments).build_backward()
    gradients = [
        torch.autograd.grad(kpage.attention(q, k, v, p).sum(), (q, k, v)) for p in (lazy, ahead)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    assert torch.equal(lazy._backward_part(), ahead._backward_part())


def test_no_backward_part_without_a_backward_pass(layout):
    plan = kpage.plan(*layout.arguments)
    q, k, v = qkv()
    with torch.no_grad():
        kpage.attention(q, k, v, plan)
    assert not plan.has_backward


@pytest.mark.parametrize("ahead", [False, True])
def test_update(layout, ahead):
    other = random_layout(2, heads=2, q_sizes=SIZES)
    q, k, v = qkv()
    plan = kpage.plan(*layout.arguments)
    if ahead:
        plan.build_backward()
    kpage.attention(q, k, v, plan).sum().backward()
    storage = plan._forward.data_ptr()
    assert plan.update_(*other.arguments) is plan
    assert plan._forward.data_ptr() == storage
    fresh = kpage.plan(*other.arguments)
    results = [kpage.attention(q, k, v, p) for p in (plan, fresh)]
    assert torch.equal(*results)
    gradients = [torch.autograd.grad(r.sum(), (q, k, v)) for r in results]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    assert torch.equal(plan._backward_part(), fresh._backward_part())


def test_update_of_another_shape_is_an_error(layout):
    plan = kpage.plan(*layout.arguments)
    other = random_layout(2, heads=2, q_sizes=SIZES[:3])
    before = plan.dump()
    with pytest.raises(ValueError, match="plan.update_: expected tensors that make a plan of shape"):
        plan.update_(*other.arguments)
    assert plan.dump() == before


def test_update_between_forward_and_backward_is_an_error(layout):
    q, k, v = qkv()
    plan = kpage.plan(*layout.arguments)
    out = kpage.attention(q, k, v, plan)
    plan.update_(*layout.arguments)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_update_that_fails_leaves_the_plan_as_it_was(layout, monkeypatch):
    other = random_layout(2, heads=2, q_sizes=SIZES)
    plan = kpage.plan(*layout.arguments).build_backward()
    before = plan.dump()

    def fail(*_):
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="out of memory"):
        patch.setattr(kpage._library, "compile_backward", fail)
        plan.update_(*other.arguments)
    assert plan.dump() == before
    expected = gradients(kpage.plan(*layout.arguments))
    assert all(torch.equal(a, b) for a, b in zip(gradients(plan), expected, strict=True))


def test_backward_part_of_another_version_is_built_again(layout):
    """As a backward pass in another thread may leave it while the plan is updated."""
    other = random_layout(2, heads=2, q_sizes=SIZES)
    plan = kpage.plan(*layout.arguments)
    gradients(plan)
    parts = kpage._library._backward_parts
    stale = parts[plan._forward]
    plan.update_(*other.arguments)
    assert not plan.has_backward
    parts[plan._forward] = stale
    assert not plan.has_backward
    expected = gradients(kpage.plan(*other.arguments))
    assert all(torch.equal(a, b) for a, b in zip(gradients(plan), expected, strict=True))


def test_from_block_map():
    block_map = torch.rand(2, 3, 4, 5) < 0.5
    index, nums = kpage.layouts.from_block_map(block_map)
    back = torch.zeros_like(block_map)
    for b, h, q in torch.cartesian_prod(torch.arange(2), torch.arange(3), torch.arange(4)).tolist():
        ids = index[b, h, q, : nums[b, h, q]].tolist()
        assert ids == sorted(ids)
        back[b, h, q, ids] = True
    assert torch.equal(back, block_map)
    assert index.dtype == nums.dtype == torch.int32


def test_version():
    assert kpage.__version__.count(".") == 2


def gradients(plan):
    tensors = qkv()
    kpage.attention(*tensors, plan).float().square().sum().backward()
    return [t.grad for t in tensors]


@pytest.mark.parametrize("built_ahead", [False, True])
def test_plan_of_inference_mode_serves_training(layout, built_ahead):
    with torch.inference_mode():
        plan = kpage.plan(*layout.arguments)
        if built_ahead:
            plan.build_backward()
    expected = gradients(kpage.plan(*layout.arguments))
    for _ in range(2):
        assert all(torch.equal(a, b) for a, b in zip(gradients(plan), expected, strict=True))
        plan.update_(*layout.arguments)


def test_update_in_inference_mode_serves_training(layout):
    other = random_layout(2, heads=2, q_sizes=SIZES, kmax=layout.index.shape[-1])
    plan = kpage.plan(*other.arguments)
    plan.build_backward()
    with torch.inference_mode():
        plan.update_(*layout.arguments)
    expected = gradients(kpage.plan(*layout.arguments))
    assert all(torch.equal(a, b) for a, b in zip(gradients(plan), expected, strict=True))


def test_plan_serves_vmap(layout):
    plan = kpage.plan(*layout.arguments)
    q, k, v = (torch.stack([t.detach(), -t.detach()]) for t in qkv())
    out = torch.func.vmap(lambda *tensors: kpage.attention(*tensors, plan))(q, k, v)
    for i in range(2):
        assert torch.equal(out[i], kpage.attention(q[i], k[i], v[i], plan))
