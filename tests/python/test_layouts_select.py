"""Selectors against their rules in plain loops: the same lists on random and video-derived q and k,
and where scores tie."""

import math

import kpage
import layouts_reference as rules
import pytest
import torch

layouts = kpage.layouts

GRID, CUBE = (5, 7, 9), (2, 4, 4)
CASES = {
    "cubes": {},
    "big cubes": {"cube": (4, 8, 8)},
    "segments": {"prefix": (40, 5), "suffix": (33,)},
    "grouped heads": {"heads": 4, "kv_heads": 2},
    "batch": {"batch": 2, "heads": 1, "kv_heads": 1},
    "ties": {"data": "ties"},
    "ties in segments": {"data": "ties", "prefix": (33,)},
    "video": {"data": "video"},
    "dense": {"placement": "dense"},
    "whole tiles": {"placement": "tile", "suffix": (50,)},
}


class Case:
    """q and k by tokens and by rows, the tiling and its tiles."""

    def __init__(self, dtype, *, cube=CUBE, prefix=(), suffix=(), placement="blk128", data="random",
                 heads=2, kv_heads=2, batch=1):
        grid = rules.video_qkv()[3] if data == "video" else GRID
        self.tiling = layouts.tiling(grid, cube, prefix=prefix, suffix=suffix, placement=placement)
        self.tiles = rules.tiles_of(grid, cube, prefix, suffix)
        tokens = self.tiling.tokens
        if data == "video":
            self.q, self.k = (x.to(dtype) for x in rules.video_qkv()[:2])
        elif data == "ties":
            self.q, self.k = rules.tied_qk(tokens, self.tiles, heads, dtype=dtype)
        else:
            self.q, self.k = rules.random_qk(tokens, heads, kv_heads, dtype=dtype, batch=batch)
        self.before, self.after = self.tiling.prefix_tiles, self.tiling.suffix_tiles
        self.cubes = range(self.before, len(self.tiles) - self.after)

    def rows(self):
        return (rules.in_rows(x, self.tiling) for x in (self.q, self.k))

    def check(self, arguments, rule):
        tile_lists = rules.each_head(self.q, self.k, rule)
        sizes = self.tiling.tile_sizes.tolist()
        assert rules.lists(arguments) == rules.expected_lists(tile_lists, sizes)
        kpage.plan(**arguments)

    def segments(self, cube_lists):
        return rules.with_segments(cube_lists, self.before, self.after)


@pytest.mark.parametrize("name", CASES)
def test_cubes(name):
    case = Case(torch.float32, **CASES[name])

    def rule(q, k):
        q, k = rules.tile_means(q, case.tiles), rules.tile_means(k, case.tiles)
        return [rules.best([rules.dot(a, b) for b in k], 7) for a in q]

    q, k = case.rows()
    case.check(layouts.cubes.select(q, k, case.tiling, top_k=7), rule)


@pytest.mark.parametrize("keep", [1, 100])
def test_cubes_of_every_count(keep):
    case = Case(torch.float32)
    q, k = case.rows()
    arguments = layouts.cubes.select(q, k, case.tiling, top_k=keep)
    assert (arguments["q2k_block_nums"] == min(keep, case.tiling.tiles)).all()


@pytest.mark.parametrize("segments", ["exempt", "compete"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_vsa(name, dtype, segments):
    case = Case(dtype, **CASES[name])
    cubes = case.cubes
    keep = max(1, min(math.ceil((1 - 0.7) * len(cubes)), len(cubes)))

    def rule(q, k):
        q, k = (rules.tile_means(x.float(), case.tiles).to(dtype) for x in (q, k))
        lists = []
        for a in q[cubes.start : cubes.stop]:
            scores = torch.tensor([rules.dot(a, b) for b in k]).to(dtype) / math.sqrt(q.shape[1])
            if segments == "exempt":
                lists.append(rules.best(scores[cubes.start : cubes.stop].tolist(), keep))
            else:
                lists.append(rules.best(scores.tolist(), keep + len(k) - len(cubes)))
        if segments == "exempt":
            return case.segments(lists)
        everything = list(range(len(k)))
        return [everything] * case.before + lists + [everything] * case.after

    q, k = case.rows()
    case.check(layouts.vsa.select(q, k, case.tiling, sparsity=0.7, segments=segments), rule)


def test_vsa_in_float32():
    case = Case(torch.bfloat16)
    q, k = case.rows()
    wide = layouts.vsa.select(q, k, case.tiling, keep=5, dtype=torch.float32)
    expected = layouts.vsa.select(q.float(), k.float(), case.tiling, keep=5)
    assert rules.lists(wide) == rules.lists(expected)


@pytest.mark.parametrize(
    "sparsity, tiles, kept",
    [(0.95, 1440, 73), (0.85, 1440, 217), (0.7, 1440, 433), (0.95, 660, 34), (0.9, 624, 63),
     (0.8, 624, 125), (0.9, 1440, 144), (1.0, 9, 1), (0.0, 9, 9)],
)
def test_vsa_top_k(sparsity, tiles, kept):
    assert layouts.vsa.top_k(sparsity, tiles) == kept


@pytest.mark.parametrize("top_k", [1, 6, 500])
@pytest.mark.parametrize("name", CASES)
def test_ssta(name, top_k):
    case = Case(torch.float32, **CASES[name])
    window, similarity = (3, 1, 3), 0.7
    seen = rules.window_lists(case.tiling.cubes, window)

    def rule(q, k):
        q, k = (rules.tile_means(x, case.tiles)[case.cubes.start : case.cubes.stop] for x in (q, k))
        q, k = (x / x.norm(dim=1, keepdim=True).clamp(min=1e-12) for x in (q, k))
        count = len(k)
        redundancy = [
            sum((rules.dot(k[i], k[j]) + 1) / 2 for i in range(count) if i != j) / (count - 1)
            for j in range(count)
        ]
        lists = []
        for i, a in enumerate(q):
            scores = [
                # Ties are between cubes that are the same: rounding must not set them apart.
                round(similarity * (rules.dot(a, b) + 1) / 2 - (1 - similarity) * r, 9)
                for b, r in zip(k, redundancy, strict=True)
            ]
            chosen = rules.best(scores, max(top_k // 2, 1))
            lists.append(sorted({*seen[i], *chosen}))
        return case.segments(lists)

    q, k = case.rows()
    if "ties" in name:
        # In float32 equal cubes have equal scores on any one path of the arithmetic, but which of two
        # others is higher by its last bit is no rule: look at one pair of values at a time.
        q, k = (x.sign() * (torch.arange(64) == 0) for x in (q, k))
        case.q, case.k = (x.sign() * (torch.arange(64) == 0) for x in (case.q, case.k))
    options = {"window": window, "top_k": top_k, "similarity": similarity}
    arguments = layouts.ssta.select(q, k, case.tiling, **options)
    case.check(arguments, rule)
    options["window"] = layouts.sta.window_map(case.tiling, window)
    again = layouts.ssta.select(q, k, case.tiling, **options)
    assert rules.lists(again) == rules.lists(arguments)


def test_ssta_keeps_all_of_top_k_for_long_videos():
    for frames, kept in ((31, 5), (32, 10)):
        tiling = layouts.tiling((frames, 1, 1), (1, 1, 1), placement="dense")
        q, k = rules.random_qk(frames)
        arguments = layouts.ssta.select(q, k, tiling, window=(1, 1, 1), top_k=10)
        assert set(arguments["q2k_block_nums"].flatten().tolist()) <= {kept, kept + 1}


SPARGE = {
    "top-k": {"top_k": 0.5},
    "top-k, few": {"top_k": 0.01},
    "cdf": {"cdf": 0.9, "similarity": 0.0},
    "cdf, few": {"cdf": 0.0},
    "forced": {"top_k": 0.3, "similarity": 0.02},
    "all forced": {"cdf": 0.3, "similarity": 2.0},
    "not smooth": {"cdf": 0.47, "smooth_k": False},
}


@pytest.mark.parametrize("data", ["random", "video", "ties"])
@pytest.mark.parametrize("name", SPARGE)
def test_sparge(name, data):
    options = {"similarity": -0.1, "smooth_k": True, **SPARGE[name]}
    if data == "video":
        q, k = (x.float() for x in rules.video_qkv()[:2])
    elif data == "random":
        q, k = rules.random_qk(450, 4, 2)
    else:
        options["smooth_k"] = False
        q, k = rules.tied_qk(448, [list(range(i, i + 64)) for i in range(0, 448, 64)])
    tokens = q.shape[2]
    q_tiling = layouts.linear_tiling(tokens, chunk=64)
    kv_tiling = layouts.linear_tiling(tokens, chunk=32)
    q_tiles, kv_tiles = rules.tiles_of((1, 1, tokens), (1, 1, 64)), rules.tiles_of(
        (1, 1, tokens), (1, 1, 32)
    )

    def alike(x, tiles):
        out = []
        for rows in tiles:
            part = x[torch.tensor(rows)].double()
            unit = part / part.norm(dim=1, keepdim=True).clamp(min=1e-300)
            out.append(float((unit @ unit.T).mean()) > options["similarity"])
        return out

    def rule(q, k):
        if options["smooth_k"]:
            k = k - k.mean(0)
        q_alike, k_alike = alike(q, q_tiles), alike(k, kv_tiles)
        q, k = rules.tile_means(q, q_tiles), rules.tile_means(k, kv_tiles)
        lists = []
        for a, fits in zip(q, q_alike, strict=True):
            scores = [
                rules.dot(a, b) / math.sqrt(len(a)) if ok else -math.inf
                for b, ok in zip(k, k_alike, strict=True)
            ]
            top = max(scores)
            weights = [math.exp(s - top) if top > -math.inf else 0.0 for s in scores]
            weights = [round(w / max(sum(weights), 1e-300), 12) for w in weights]
            if "top_k" in options:
                chosen = rules.best(weights, max(int(options["top_k"] * len(k)), 1))
            else:
                order = sorted(range(len(k)), key=lambda i: (-weights[i], i))
                chosen, total = order[:1], weights[order[0]]
                for i in order[1:]:
                    total += weights[i]
                    if total > options["cdf"]:
                        break
                    chosen.append(i)
            forced = [i for i, ok in enumerate(k_alike) if not ok or not fits]
            lists.append(sorted({*chosen, *forced}))
        return lists

    arguments = layouts.sparge.select(q, k, q_tiling, kv_tiling, **options)
    expected = rules.expected_lists(
        rules.each_head(q, k, rule), q_tiling.tile_sizes.tolist(), kv_tiling.tile_sizes.tolist()
    )
    assert rules.lists(arguments) == expected
    kpage.plan(**arguments)


@pytest.mark.parametrize("data", ["random", "video"])
def test_svg1_head_types(data):
    if data == "video":
        q, k, v, grid = rules.video_qkv()
        frames, frame = grid[0], grid[1] * grid[2]
        q, k, v = (x.float() for x in (q, k, v))
    else:
        frames, frame = 6, 100
        q, k = rules.random_qk(600, 4, 2)
        v = k.flip(2)
    arguments = layouts.svg1.layout(frames, frame, heads=1, density=0.2, first_frame_sink=False)
    order = layouts.svg1.token_major(frames, frame)
    mask = rules.token_mask(
        rules.lists(arguments), rules.tiles_of((1, 1, frames * frame), (1, 1, 128))
    )[0, 0]
    rows = torch.arange(5, frames * frame, 37)
    got = layouts.svg1.temporal_heads(q, k, v, arguments, order, rows=rows)
    place = order.row_of_token.long()
    for b, h in torch.cartesian_prod(torch.arange(q.shape[0]), torch.arange(q.shape[1])).tolist():
        kv = h // (q.shape[1] // k.shape[1])
        errors = [0.0, 0.0]
        for row in rows.tolist():
            scores = (k[b, kv] @ q[b, h, row]).double() / math.sqrt(q.shape[-1])
            full = scores.softmax(0) @ v[b, kv].double()
            for kind, seen in enumerate((mask[row], mask[place[row]][place])):
                part = scores.masked_fill(~seen, -math.inf).softmax(0) @ v[b, kv].double()
                errors[kind] += float((part - full).square().sum())
        assert bool(got[b, h]) == (errors[1] < errors[0])
    assert layouts.svg1.temporal_heads(q, k, v, arguments, order).shape == q.shape[:2]


def test_svg1_tells_heads_apart():
    frames, frame, dim = 8, 128, 64
    token = torch.arange(frames * frame)
    generator = torch.Generator().manual_seed(2)
    of_frame = 8 * torch.randn(frames, dim, generator=generator)
    of_patch = 8 * torch.randn(frame, dim, generator=generator)
    x = torch.stack([of_frame[token // frame], of_patch[token % frame]])[None]
    v = torch.randn(1, 2, frames * frame, dim, generator=generator)
    arguments = layouts.svg1.layout(frames, frame, heads=2, density=0.2, first_frame_sink=False)
    order = layouts.svg1.token_major(frames, frame)
    got = layouts.svg1.temporal_heads(x, x, v, arguments, order)
    assert got.tolist() == [[False, True]]


@pytest.mark.parametrize("reduction", [0.0, 0.5, 0.875])
@pytest.mark.parametrize("data", ["random", "ties", "video"])
def test_vorta_coreset(data, reduction):
    grid, window = (4, 6, 4), (2, 3, 2)
    if data == "random":
        x, _ = rules.random_qk(96)
    elif data == "video":
        x, grid, window = rules.video_qkv()[0].float(), rules.video_qkv()[3], (2, 3, 11)
    else:
        x = torch.randint(0, 2, (1, 2, 96, 2), generator=torch.Generator().manual_seed(0)).float()
    made = layouts.vorta.coreset(x, grid, window, reduction=reduction)
    keep = int(math.prod(window) * (1 - reduction)) - 1
    middle = ((window[0] // 2) * window[1] + window[1] // 2) * window[2] + window[2] // 2
    windows = rules.tiles_of(grid, window)
    for h in range(2):
        centres = [rows[middle] for rows in windows]
        kept, source = [], {}
        for number, (rows, centre) in enumerate(zip(windows, centres, strict=True)):
            others = [i for i in rows if i != centre]
            unit = torch.nn.functional.normalize(x[0, h].double(), dim=1)
            likeness = {i: round(rules.dot(unit[i], unit[centre]), 6) for i in others}
            others.sort(key=lambda i: (likeness[i], i))
            source[centre] = number
            for place, i in enumerate(others):
                source[i] = len(windows) + number * keep + place if place < keep else number
            kept += others[:keep]
        assert made.token_of_row[0, h].tolist() == centres + kept
        assert made.source[0, h].tolist() == [source[i] for i in range(math.prod(grid))]
    rows = kpage.tile(x, made.token_of_row)
    spread = layouts.vorta.spread(rows, made)
    kept = made.token_of_row.long()[..., None].expand(-1, -1, -1, x.shape[3])
    assert torch.equal(spread.gather(2, kept), rows)
    arguments = layouts.vorta.coreset_layout(rows.shape[2], heads=2)
    assert rules.lists(arguments) == [[[list(range(b)) for _ in range(b)]] * 2
                                      for b in [-(-rows.shape[2] // 128)]]


# q and k that are not of a kind: one check serves all selectors.
SELECTORS = {
    "cubes": lambda q, k, t: layouts.cubes.select(q, k, t),
    "vsa": lambda q, k, t: layouts.vsa.select(q, k, t, keep=1),
    "ssta": lambda q, k, t: layouts.ssta.select(q, k, t),
    "sparge": lambda q, k, t: layouts.sparge.select(q, k, t, t, cdf=0.5),
}


@pytest.mark.parametrize("name", SELECTORS)
def test_queries_and_keys_of_other_kinds(name):
    case = Case(torch.float32)
    q, k = case.rows()
    for pair, message in (
        ((q, k[..., :32]), "k: expected the head dimension of q, 64, got 32"),
        ((q, k.half()), "k: expected the dtype of q, torch.float32, got torch.float16"),
        ((q.int(), k.int()), "q: expected floating-point numbers, got torch.int32"),
        ((q.to_sparse(), k), "q: expected a dense tensor, got torch.sparse_coo"),
        ((q, k.to("meta")), "k: expected a tensor with values, got one on meta"),
    ):
        with pytest.raises(ValueError, match=message):
            SELECTORS[name](*pair, case.tiling)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda k: {"k": k[:, :, 1:], "v": k[:, :, 1:]}, "k: expected the 200 tokens of q, got 199"),
        (lambda k: {"v": k[:, :1]}, r"v: expected shape \[1, 2, 200, 64\]"),
        (lambda k: {"k": k.half()}, "k: expected the dtype of q"),
        (lambda k: {"rows": torch.tensor([0, 200])}, "rows: expected 0 to 199, got 200"),
        (lambda k: {"rows": torch.tensor([-1, 3])}, "rows: expected 0 to 199, got -1"),
        (lambda k: {"rows": torch.tensor([1.5])}, "rows: expected int32 or int64"),
        (lambda k: {"rows": torch.arange(0)}, "rows: expected at least one token, got none"),
        (
            lambda k: {"arguments": layouts.svg1.layout(4, 40, heads=1)},
            "arguments, the rows of all blocks: expected 200, got 160",
        ),
    ],
)
def test_errors_of_svg1_head_types(change, message):
    q, k = rules.random_qk(200)
    arguments = layouts.svg1.layout(4, 50, heads=1)
    options = {"q": q, "k": k, "v": k, "arguments": arguments, **change(k)}
    with pytest.raises(ValueError, match=message):
        layouts.svg1.temporal_heads(**options, order=layouts.svg1.token_major(4, 50))


@pytest.mark.parametrize(
    "shape", [(2, 2, 80, 64), (1, 2, 81, 64), (1, 2, 80, 32), (1, 1, 2, 80, 64), (3,)]
)
def test_gates_of_other_shapes(shape):
    tiling = layouts.linear_tiling(80)
    x = torch.zeros(1, 2, 80, 64, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=r"gate: expected shape \[1, 2, 80, 64\] or one that"):
        layouts.vsa.attention(x, x, x, tiling, keep=1, gate=torch.ones(shape))
    for fits in ((), (64,), (1, 2, 80, 1), (80, 64)):
        gate = torch.ones(fits, dtype=torch.bfloat16)
        assert layouts.vsa.attention(x, x, x, tiling, keep=1, gate=gate).shape == x.shape


@pytest.mark.parametrize("shape", [(1, 2, 15, 64), (1, 1, 16, 64), (2, 2, 16, 64), (1, 2, 17, 64)])
def test_outputs_that_are_not_a_coresets(shape):
    made = layouts.vorta.coreset(rules.random_qk(32)[0], (2, 4, 4), (2, 2, 2))
    assert made.token_of_row.shape == (1, 2, 16)
    with pytest.raises(ValueError, match=r"out: expected shape \[1, 2, 16, 64\]"):
        layouts.vorta.spread(torch.zeros(shape), made)


ERRORS = [
    (
        lambda q, k, t: layouts.ssta.select(q, k, t, window=torch.ones(3, 3).bool()),
        r"window: expected shape \[18, 18\], got \[3, 3\]",
    ),
    (
        lambda q, k, t: layouts.ssta.select(q, k, t, window=torch.ones(18, 18)),
        "window: expected bool, got torch.float32",
    ),
    (
        lambda q, k, t: layouts.sparge.select(q, k, t, t, cdf=0.5, similarity=math.nan),
        "similarity: expected a number, got nan",
    ),
    (lambda q, k, t: layouts.vsa.select(q, k, t), "keep: expected either sparsity or keep"),
    (lambda q, k, t: layouts.vsa.select(q, k, t, keep=0), "keep: expected at least 1"),
    (lambda q, k, t: layouts.vsa.select(q, k, t, sparsity=-0.1), "sparsity: expected a number in"),
    (lambda q, k, t: layouts.vsa.select(q, k, t, keep=1, segments="x"), "segments: expected one of"),
    (lambda q, k, t: layouts.vsa.select(q[0], k, t, keep=1), r"q: expected shape \[B, H, rows, D\]"),
    (lambda q, k, t: layouts.vsa.select(q, k[:, :, 1:], t, keep=1), "k: expected the .* rows of"),
    (lambda q, k, t: layouts.vsa.select(q[:, :1], k, t, keep=1), "k: expected 1 batch elements"),
    (lambda q, k, t: layouts.vsa.from_scores(q, t, keep=1), "scores: expected .* tiles"),
    (lambda q, k, t: layouts.cubes.select(q, k, t, top_k=0), "top_k: expected at least 1, got 0"),
    (lambda q, k, t: layouts.ssta.select(q, k, t, similarity=2), "similarity: expected a number in"),
    (lambda q, k, t: layouts.ssta.select(q, k, t, window=(1, 2)), r"windows\[0\]: expected 3"),
    (lambda q, k, t: layouts.sparge.select(q, k, t, t), "cdf: expected either top_k or cdf"),
    (lambda q, k, t: layouts.sparge.select(q, k, t, t, cdf=1.1), "cdf: expected a number in"),
    (
        lambda q, k, t: layouts.sparge.select(q, k, t, layouts.linear_tiling(200), cdf=0.5),
        "k: expected the 200 rows of its tiling, got",
    ),
    (
        lambda q, k, t: layouts.sparge.select(q, k, layouts.linear_tiling(200), t, cdf=0.5),
        "q: expected the 200 rows of its tiling, got",
    ),
    (lambda q, k, t: layouts.vorta.coreset(q, (5, 7, 9), (2, 7, 9)), "window: expected extents that"),
    (lambda q, k, t: layouts.vorta.coreset(q, (5, 7, 8), (5, 7, 8)), "x: expected the 280 tokens"),
]


@pytest.mark.parametrize("call, message", ERRORS)
def test_errors(call, message):
    case = Case(torch.float32)
    q, k = case.rows()
    with pytest.raises(ValueError, match=message):
        call(q, k, case.tiling)


@pytest.mark.parametrize("name", SELECTORS)
def test_what_is_no_tiling(name):
    case = Case(torch.float32)
    q, k = case.rows()
    with pytest.raises(TypeError, match="tiling: expected Tiling, got tuple"):
        SELECTORS[name](q, k, GRID)


@pytest.mark.parametrize("dtype", ["float32", torch.int32, 32], ids=str)
def test_dtypes_of_scores(dtype):
    case = Case(torch.float32)
    q, k = case.rows()
    with pytest.raises(TypeError, match="dtype: expected a torch.dtype of floating-point numbers"):
        layouts.vsa.select(q, k, case.tiling, keep=1, dtype=dtype)


def test_what_is_no_tensor():
    case = Case(torch.float32)
    q, _ = case.rows()
    with pytest.raises(TypeError, match="k: expected a tensor, got list"):
        layouts.vsa.select(q, [1], case.tiling, keep=1)
