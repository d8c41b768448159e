"""Attention through each system's layout, from tokens in the model's order and back, against dense
masked attention in fp64: forward and gradient."""

import math

import kpage
import layouts_reference as rules
import pytest
import reference
import torch
from reference import relative_error
from test_attention import GRADIENT_ERROR, OUTPUT_ERROR

layouts = kpage.layouts
BF16 = torch.bfloat16
GRID = (5, 7, 9)


def leaves(tokens, heads=2, kv_heads=2, seed=0):
    q, k = rules.random_qk(tokens, heads, kv_heads, dtype=BF16, seed=seed)
    v = rules.random_qk(tokens, kv_heads, dtype=BF16, seed=seed + 1)[0]
    return [x.requires_grad_() for x in (q, k, v)]


def check(attend, q, k, v, mask):
    """attend(q, k, v) of tokens against attention through the mask bool [B, H, tokens, tokens]."""
    d_o = torch.randn(q.shape, generator=torch.Generator().manual_seed(9)).to(q.dtype)
    out = attend(q, k, v)
    got = torch.autograd.grad(out, (q, k, v), d_o)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    expected, _ = reference.attention(*exact, mask)
    assert relative_error(out, expected) <= OUTPUT_ERROR[q.dtype]
    for a, b in zip(got, torch.autograd.grad((expected * d_o.double()).sum(), exact), strict=True):
        assert relative_error(a, b) <= GRADIENT_ERROR[q.dtype]


def through(tiling, select):
    """Tokens to rows, selection on rows, plan, attention, and back to tokens."""

    def attend(q, k, v):
        q, k, v = (kpage.tile(x, tiling) for x in (q, k, v))
        plan = kpage.plan(**select(q, k))
        return kpage.untile(kpage.attention(q, k, v, plan), tiling)

    return attend


TILED = {
    "cubes": lambda q, k, t: layouts.cubes.select(q, k, t, top_k=5),
    "vsa": lambda q, k, t: layouts.vsa.select(q, k, t, sparsity=0.6),
    "sta": lambda q, k, t: layouts.sta.layout(t, [(3, 3, 1), (1, 3, 3)]),
    "ssta": lambda q, k, t: layouts.ssta.select(q, k, t, window=(1, 3, 1), top_k=6),
}


@pytest.mark.parametrize("placement", ["blk128", "tile", "dense"])
@pytest.mark.parametrize("cube, suffix", [((2, 4, 4), ()), ((4, 8, 8), (50,))])
@pytest.mark.parametrize("name", TILED)
def test_tiled(name, cube, suffix, placement):
    tiling = layouts.tiling(GRID, cube, suffix=suffix, placement=placement)
    q, k, v = leaves(tiling.tokens)
    tiles = rules.tiles_of(GRID, cube, (), suffix)
    blocks, _ = rules.blocks_of([len(t) for t in tiles])
    rows = (rules.in_rows(x.detach(), tiling, 0.0) for x in (q, k))
    chosen = rules.lists(TILED[name](*rows, tiling))
    # Back from blocks to tiles: all blocks of a tile have one list, of whole tiles.
    tile_of = {block: i for i, of_tile in enumerate(blocks) for block in of_tile}
    of_tiles = [
        [[sorted({tile_of[b] for b in head[of_tile[0]]}) for of_tile in blocks] for head in element]
        for element in chosen
    ]
    assert chosen == rules.expected_lists(of_tiles, [len(t) for t in tiles])
    mask = rules.token_mask(of_tiles, tiles)
    check(through(tiling, lambda q, k: TILED[name](q, k, tiling)), q, k, v, mask)


def test_sparge_of_64_rows():
    q, k, v = leaves(450, 4, 2)
    q_tiling, kv_tiling = (layouts.linear_tiling(450, chunk=n) for n in (128, 64))

    def attend(q, k, v):
        made = layouts.sparge.select(q, k, q_tiling, kv_tiling, top_k=0.4)
        return kpage.attention(q, k, v, kpage.plan(**made))

    made = layouts.sparge.select(q, k, q_tiling, kv_tiling, top_k=0.4)
    sides = (rules.tiles_of((1, 1, 450), (1, 1, n)) for n in (128, 64))
    check(attend, q, k, v, rules.token_mask(rules.lists(made), *sides))


@pytest.mark.parametrize("text", [0, 30])
def test_radial(text):
    made = layouts.radial.layout(4, 100, text_tokens=text, heads=2)
    q, k, v = leaves(400 + text)
    plan = kpage.plan(**made)
    mask = rules.token_mask(rules.lists(made), rules.tiles_of((1, 1, 400), (1, 1, 128), (), [text]))
    check(lambda *x: kpage.attention(*x, plan), q, k, v, mask)


def test_svg1_with_heads_of_both_kinds():
    frames, frame, text = 4, 90, 20
    made = layouts.svg1.layout(frames, frame, text_tokens=text, heads=2, density=0.4)
    order = layouts.svg1.order_of_heads(
        torch.tensor([[True, False]]), layouts.svg1.token_major(frames, frame, text)
    )
    plan = kpage.plan(**made)
    q, k, v = leaves(frames * frame + text)

    def attend(*qkv):
        return kpage.untile(kpage.attention(*(kpage.tile(x, order) for x in qkv), plan), order)

    tiles = rules.tiles_of((1, 1, frames * frame), (1, 1, 128), (), [text])
    mask = rules.token_mask(rules.lists(made), tiles)
    place = order.row_of_token[0, 0].long()
    mask[0, 0] = mask[0, 0][place][:, place]
    check(attend, q, k, v, mask)


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("text", [None, (12, 7)])
def test_svg2(text, kv_heads):
    tokens, tail = 300, sum(text or ())
    q, k, v = leaves(tokens + tail, 2, kv_heads)
    q_made = layouts.svg2.kmeans(q[:, :, :tokens], 5, iterations=3)
    k_made = layouts.svg2.kmeans(k[:, :, :tokens], 11, iterations=3)
    options = {"top_p": 0.5, "min_ratio": 0.0}
    made = layouts.svg2.select(q_made, k_made, text=text, **options)

    def attend(q, k, v):
        q = kpage.tile(q, made.q_order)
        k, v = (kpage.tile(x, made.kv_order) for x in (k, v))
        return kpage.untile(kpage.attention(q, k, v, kpage.plan(**made.arguments)), made.q_order)

    chosen = layouts.svg2.cluster_map(q_made, k_made, **options)
    mask = torch.zeros(1, 2, tokens + tail, tokens + tail, dtype=torch.bool)
    for h in range(2):
        rows, columns = q_made.labels[0, h].long(), k_made.labels[0, h * kv_heads // 2].long()
        mask[0, h, :tokens, :tokens] = chosen[0, h][rows][:, columns]
    if text:
        prompt = slice(tokens, tokens + text[0])
        mask[:, :, : prompt.stop, prompt] = mask[:, :, prompt, : prompt.stop] = True
        mask[:, :, prompt.stop :, prompt.stop :] = True
    check(attend, q, k, v, mask)


def test_vorta_coreset():
    grid = (4, 6, 4)
    q, k, v = leaves(96)
    made = layouts.vorta.coreset(q, grid, (2, 3, 2))
    plan = kpage.plan(**layouts.vorta.coreset_layout(made.token_of_row.shape[2], heads=2))
    out = kpage.attention(*(kpage.tile(x, made.token_of_row) for x in (q, k, v)), plan)
    got = layouts.vorta.spread(out, made)
    mask = torch.zeros(1, 2, 96, 96, dtype=torch.bool)
    kept = made.token_of_row.long()
    mask.scatter_(3, kept[:, :, None].expand(-1, -1, 96, -1), True)
    expected, _ = reference.attention(q, k, v, mask)
    own = made.token_of_row.gather(2, made.source).long()[..., None].expand(-1, -1, -1, 64)
    assert relative_error(got, expected.gather(2, own)) <= OUTPUT_ERROR[BF16]


# --- VSA's coarse branch ----------------------------------------------------------------------


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_vsa_with_its_coarse_branch(gated, kv_heads):
    tiling = layouts.tiling(GRID, (2, 4, 4), placement="dense")
    tiles = rules.tiles_of(GRID, (2, 4, 4))
    q, k, v = leaves(tiling.tokens, 2, kv_heads)
    gate = torch.rand(q.shape, generator=torch.Generator().manual_seed(5)).to(BF16)
    gate = gate.requires_grad_() if gated else None

    def attend(q, k, v, gate):
        q, k, v = (kpage.tile(x, tiling) for x in (q, k, v))
        gate = None if gate is None else kpage.tile(gate, tiling)
        return kpage.untile(layouts.vsa.attention(q, k, v, tiling, gate=gate, keep=4), tiling)

    out = attend(q, k, v, gate)
    inputs = [q, k, v] + ([gate] if gated else [])
    d_o = torch.randn(out.shape, generator=torch.Generator().manual_seed(9)).to(BF16)
    got = torch.autograd.grad(out, inputs, d_o)

    exact = [x.detach().double().requires_grad_() for x in inputs]
    rows = (kpage.tile(x.detach(), tiling) for x in (q, k))
    mask = rules.token_mask(rules.lists(layouts.vsa.select(*rows, tiling, keep=4)), tiles)
    fine, _ = reference.attention(*exact[:3], mask)
    pool = torch.zeros(len(tiles), tiling.tokens, dtype=torch.float64)
    for i, tokens in enumerate(tiles):
        pool[i, tokens] = 1 / len(tokens)
    group = 2 // kv_heads
    means = [pool @ x for x in exact[:3]]
    means[1:] = (x.repeat_interleave(group, dim=1) for x in means[1:])
    of_tiles = (means[0] @ means[1].mT / math.sqrt(64)).softmax(-1) @ means[2]
    coarse = (pool > 0).double().mT @ of_tiles
    expected = fine + (coarse * exact[3] if gated else coarse)
    gradients = torch.autograd.grad((expected * d_o.double()).sum(), exact)
    # The branch rounds its pools and scores to bf16, as the system does.
    assert relative_error(out, expected) <= 2 * OUTPUT_ERROR[BF16]
    for a, b in zip(got, gradients, strict=True):
        assert relative_error(a, b) <= 2 * GRADIENT_ERROR[BF16]


def test_coarse_branch_is_zero_in_padding():
    tiling = layouts.tiling(GRID, (2, 4, 4))
    q, k = rules.random_qk(tiling.tokens, dtype=BF16)
    q, k = (rules.in_rows(x, tiling) for x in (q, k))
    out = layouts.vsa.coarse(layouts.vsa.scores(q, k, tiling), k, tiling)
    assert torch.all(out[:, :, tiling.token_of_row < 0] == 0) and out.isfinite().all()


# --- SSTA as released: padding counts ---------------------------------------------------------


@pytest.mark.parametrize("placement", ["blk128", "dense"])
@pytest.mark.parametrize("suffix", [(), (64,)])
def test_ssta_counts_pads(suffix, placement):
    """Against dense attention over cubes padded with zero keys and values that are not masked."""
    cube = (2, 4, 8)
    tiling = layouts.tiling(GRID, cube, suffix=suffix, placement=placement)
    tiles = rules.tiles_of(GRID, cube, (), suffix)
    q, k, v = leaves(tiling.tokens)
    rule = {"window": (1, 3, 1), "top_k": 4}

    def attend(q, k, v):
        q, k, v = (kpage.tile(x, tiling) for x in (q, k, v))
        out, lse = layouts.ssta.attention(
            q, k, v, tiling, count_pads=True, return_lse=True, **rule
        )
        return kpage.untile(out, tiling), lse

    out, lse = attend(q, k, v)
    chosen = rules.lists(
        layouts.ssta.select(*(kpage.tile(x.detach(), tiling) for x in (q, k)), tiling, **rule)
    )
    volume = math.prod(cube)
    padded, exact = [], [x.detach().double().requires_grad_() for x in (q, k, v)]
    for x in exact:
        parts = []
        for tokens in tiles:
            part = x[:, :, torch.tensor(tokens)]
            parts.append(torch.nn.functional.pad(part, (0, 0, 0, volume - len(tokens))))
        padded.append(torch.cat(parts, 2))
    blocks = [list(range(i * volume, (i + 1) * volume)) for i in range(len(tiles))]
    expected, expected_lse = reference.attention(*padded, rules.token_mask(chosen, blocks))
    place = torch.zeros(tiling.tokens, dtype=torch.long)
    for i, tokens in enumerate(tiles):
        place[torch.tensor(tokens)] = i * volume + torch.arange(len(tokens))
    expected, expected_lse = expected[:, :, place], expected_lse[:, :, place]
    # The correction rounds a second time.
    assert relative_error(out, expected) <= math.sqrt(2) * OUTPUT_ERROR[BF16]
    rows = lse[:, :, tiling.row_of_token.long()]
    torch.testing.assert_close(rows.double(), expected_lse, atol=4e-6, rtol=1e-6)
    assert torch.all(lse[:, :, tiling.token_of_row < 0] == -math.inf)
    d_o = torch.randn(out.shape, generator=torch.Generator().manual_seed(9)).to(BF16)
    d_lse = torch.randn(rows.shape, generator=torch.Generator().manual_seed(8))
    got = torch.autograd.grad((out, rows), (q, k, v), (d_o, d_lse))
    loss = (expected * d_o.double()).sum() + (expected_lse * d_lse.double()).sum()
    for a, b in zip(got, torch.autograd.grad(loss, exact), strict=True):
        assert relative_error(a, b) <= GRADIENT_ERROR[BF16]


# --- In compiled functions --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cubes", "vsa", "ssta", "sparge", "svg2"])
def test_select_plan_and_attend_compile_without_graph_breaks(name):
    tiling = layouts.tiling(GRID, (2, 4, 4), placement="dense")
    linear = layouts.linear_tiling(tiling.tokens, chunk=64)
    window = layouts.sta.window_map(tiling, (1, 3, 1))
    q, k, v = (x.detach() for x in leaves(tiling.tokens))
    start = q[:, :, ::40].contiguous()

    def function(q, k, v):
        if name == "svg2":
            made = layouts.svg2.select(*(layouts.svg2.kmeans(x, centroids=start) for x in (q, k)))
            q = kpage.tile(q, made.q_order)
            k, v = (kpage.tile(x, made.kv_order) for x in (k, v))
            return kpage.attention(q, k, v, kpage.plan(**made.arguments))
        arguments = {
            "cubes": lambda: layouts.cubes.select(q, k, tiling, top_k=5),
            "vsa": lambda: layouts.vsa.select(q, k, tiling, sparsity=0.6),
            "ssta": lambda: layouts.ssta.select(q, k, tiling, window=window, top_k=6),
            "sparge": lambda: layouts.sparge.select(q, k, linear, linear, cdf=0.9),
        }[name]()
        return kpage.attention(q, k, v, kpage.plan(**arguments))

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q, k, v), function(q, k, v))
