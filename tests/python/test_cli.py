"""The command line on files of other writers, against attention computed here from its rule."""

import json
import math
import os
import pathlib
import shutil
import subprocess

import pytest
import torch
from safetensors.torch import load_file, save_file

KPAGE = os.environ.get("KPAGE_BIN") or shutil.which("kpage")
pytestmark = pytest.mark.skipif(
    not KPAGE or not pathlib.Path(KPAGE).exists(), reason="needs the program kpage: KPAGE_BIN")

GRID, CUBE, KEEP = (6, 8, 10), (4, 4, 4), 0.5


def kpage(*words, code=0):
    done = subprocess.run([KPAGE, *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    return done


def cube_of_token():
    """The cube of each token, and the cubes' count: cubes in raster order, cut at the grid's ends."""
    counts = [math.ceil(n / c) for n, c in zip(GRID, CUBE)]
    t, h, w = torch.meshgrid(*(torch.arange(n) // c for n, c in zip(GRID, CUBE)), indexing="ij")
    return ((t * counts[1] + h) * counts[2] + w).flatten(), math.prod(counts)


def vsa_mask(q, k):
    """Token mask [H, S, S] of VSA's rule: means and scores in bf16, the best ceil(keep * cubes)."""
    cube, count = cube_of_token()
    member = torch.nn.functional.one_hot(cube, count).T.float()
    sizes = member.sum(1, keepdim=True)
    means = [((member @ x.float()) / sizes).bfloat16() for x in (q, k)]
    products = (means[0].float() @ means[1].float().transpose(-1, -2)).bfloat16()
    scores = (products.float() / math.sqrt(q.shape[-1])).bfloat16().float()
    kept = max(1, math.ceil((1 - (1 - KEEP)) * count))
    # A stable sort puts lower numbers first among equals.
    best = scores.sort(dim=-1, descending=True, stable=True).indices[..., :kept]
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, best, True)
    return chosen[:, cube][:, :, cube]


def test_run_is_attention_over_the_rule(tmp_path):
    generator = torch.Generator().manual_seed(1)
    tensors = {name: torch.randn(1, 2, math.prod(GRID), 64, generator=generator).bfloat16()
               for name in ("q", "k", "v", "d_o")}
    save_file(tensors, tmp_path / "capture.safetensors")
    done = kpage("run", tmp_path / "capture.safetensors", "--grid", "6x8x10", "--layout", "vsa",
                 "--cube", "4x4x4", "--keep", KEEP, "--backward", "--json",
                 "--output", tmp_path / "out.safetensors", "--report", tmp_path / "report.html")
    figures = json.loads(done.stdout)
    out = load_file(tmp_path / "out.safetensors")

    q, k, v = (tensors[name][0].double().requires_grad_() for name in "qkv")
    mask = vsa_mask(tensors["q"][0], tensors["k"][0])
    scores = (q @ k.transpose(-1, -2) / 8).masked_fill(~mask, -math.inf)
    o = scores.softmax(-1) @ v
    o.backward(tensors["d_o"][0].double())
    assert figures["useful_pairs"] == mask.sum().item()
    for name, want in {"o": o, "dq": q.grad, "dk": k.grad, "dv": v.grad}.items():
        error = (out[name][0].double() - want).norm() / want.norm()
        assert error < 5e-3, name
    assert (out["lse"][0].double() - scores.logsumexp(-1)).abs().max() < 2e-5
    assert "<svg" in (tmp_path / "report.html").read_text()


def test_plan_of_tensors_that_python_wrote(tmp_path):
    save_file({"q2k_block_index": torch.tensor([[[[0, 1], [1, 0]]]]),
               "q2k_block_nums": torch.tensor([[[2, 1]]]),
               "q_block_sizes": torch.tensor([100, 28])}, tmp_path / "layout.safetensors")
    figures = json.loads(kpage("plan", tmp_path / "layout.safetensors", "--json").stdout)
    assert figures["useful_pairs"] == 100 * 128 + 28 * 28
    failed = kpage("plan", tmp_path / "absent.safetensors", code=2)
    assert "absent.safetensors: cannot read" in failed.stderr
    assert failed.stdout == ""
