"""Tilings from Python: against plain loops, the paper's Table 2, means of tiles, static layouts."""

import math

import kpage
import layouts_reference as rules
import pytest
import torch

layouts = kpage.layouts

SEQUENCES = {
    "cubes of 64": ((5, 9, 11), (4, 4, 4), (), ()),
    "cubes of 256": ((5, 9, 11), (4, 8, 8), (), ()),
    "cubes of 384 and text": ((7, 9, 17), (6, 8, 8), (), (400,)),
    "cubes of 1024": ((9, 17, 9), (8, 16, 8), (), ()),
    "segments": ((3, 6, 5), (2, 4, 4), (70, 5, 0), (33, 1)),
    "one token": ((1, 1, 1), (4, 4, 4), (), ()),
    "text alone": ((0, 0, 0), (2, 2, 2), (9,), ()),
    "nothing": ((0, 3, 4), (2, 2, 2), (), ()),
}
PLACEMENTS = ("blk128", "tile", "dense")


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("name", SEQUENCES)
def test_tiling(name, placement):
    grid, cube, prefix, suffix = SEQUENCES[name]
    tiling = layouts.tiling(grid, cube, prefix=prefix, suffix=suffix, placement=placement)
    tiles = rules.tiles_of(grid, cube, prefix, suffix)
    blocks, sizes = rules.blocks_of([len(t) for t in tiles])
    assert (tiling.tiles, tiling.blocks) == (len(tiles), len(sizes))
    assert tiling.tile_sizes.tolist() == [len(t) for t in tiles]
    assert tiling.block_sizes.tolist() == sizes
    assert tiling.tile_of_block.tolist() == [i for i, b in enumerate(blocks) for _ in b]
    assert tiling.first_block.tolist() == [b[0] for b in blocks]
    assert tiling.blocks_of_tile.tolist() == [len(b) for b in blocks]
    assert tiling.most_blocks == max(map(len, blocks), default=0)
    assert tiling.prefix_tiles == sum(math.ceil(n / math.prod(cube)) for n in prefix)
    assert tiling.suffix_tiles == sum(math.ceil(n / math.prod(cube)) for n in suffix)
    done = 0
    for i, tokens in enumerate(tiles):
        first = {"blk128": 128 * blocks[i][0], "tile": i * math.prod(cube), "dense": done}[placement]
        assert int(tiling.tile_offsets[i]) == first
        rows = torch.arange(first, first + len(tokens))
        assert tiling.token_of_row[rows].tolist() == tokens
        assert tiling.row_of_token[torch.tensor(tokens)].tolist() == rows.tolist()
        for place, block in enumerate(blocks[i]):
            begin = first + 128 * place
            assert int(tiling.block_offsets[block]) == begin
            assert (tiling.block_of_row[begin : begin + sizes[block]] == block).all()
        done += len(tokens)
    assert tiling.tokens == done and int((tiling.token_of_row >= 0).sum()) == done
    assert torch.equal(tiling.block_of_row < 0, tiling.token_of_row < 0)


def test_raster_placement_keeps_tokens():
    tiling = layouts.tiling((4, 6, 5), (2, 6, 5), placement="raster")
    assert tiling.row_of_token.tolist() == list(range(120))
    with pytest.raises(ValueError, match="placement: expected another than raster"):
        layouts.tiling((4, 6, 5), (2, 3, 5), placement="raster")


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 257])
def test_linear_tiling(size):
    tiling = layouts.linear_tiling(size, 3)
    assert tiling.block_sizes.tolist() == rules.chunks(size, 128) + [3]
    assert tiling.row_of_token.tolist() == list(range(size + 3))
    assert tiling.suffix_tiles == 1


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("name", SEQUENCES)
def test_means_leave_padding_out(name, placement):
    grid, cube, prefix, suffix = SEQUENCES[name]
    tiling = layouts.tiling(grid, cube, prefix=prefix, suffix=suffix, placement=placement)
    if tiling.tiles == 0:
        return
    tiles = rules.tiles_of(grid, cube, prefix, suffix)
    tokens = torch.randn(2, 3, tiling.tokens, 8)
    x = rules.in_rows(tokens, tiling).requires_grad_()
    means = tiling.means(x)
    assert means.dtype == torch.float32
    weights = torch.randn(means.shape)
    (gradient,) = torch.autograd.grad((means * weights).sum(), x)
    for i, rows in enumerate(tiles):
        expected = tokens[:, :, torch.tensor(rows)].double().mean(2)
        torch.testing.assert_close(means[:, :, i].double(), expected, atol=1e-6, rtol=1e-5)
        at = tiling.row_of_token[torch.tensor(rows)].long()
        each = (weights[:, :, i] / len(rows))[:, :, None].expand(-1, -1, len(rows), -1)
        torch.testing.assert_close(gradient[:, :, at], each)
    assert torch.all(gradient[:, :, tiling.token_of_row < 0] == 0)


# The layouts of the paper's Table 2 that Q and K/V share: tiles by valid rows, as the systems'
# geometry gives them, and then padding and partial blocks in percent, the latter two from the paper
# where its text gives them.
TABLE_2 = {
    "SSTA 480p 121f": (
        (31, 30, 53),
        (6, 8, 8),
        {384: 90, 288: 30, 240: 15, 180: 5, 64: 18, 48: 6, 40: 3, 30: 1},
        (10.0, 18.2),
    ),
    "SSTA 480p 241f": (
        (61, 30, 53),
        (6, 8, 8),
        {384: 180, 288: 60, 240: 30, 180: 10, 64: 18, 48: 6, 40: 3, 30: 1},
        (8.5, 15.5),
    ),
    "SSTA 720p 121f": ((31, 45, 80), (6, 8, 8), {384: 250, 240: 50, 64: 50, 40: 10}, (4.2, 12.1)),
    "SSTA 720p 241f": ((61, 45, 80), (6, 8, 8), {384: 500, 240: 100, 64: 50, 40: 10}, (2.5, 9.1)),
    "STA 720p 117f": ((30, 45, 80), (6, 8, 8), {384: 250, 240: 50}, (0.7, 5.9)),
    "VSA 480p (4,4,4)": ((21, 30, 52), (4, 4, 4), {64: 455, 32: 65, 16: 91, 8: 13}, (59.0, 100.0)),
    "VSA 480p (4,8,8)": (
        (21, 30, 52),
        (4, 8, 8),
        {256: 90, 192: 30, 128: 15, 96: 5, 64: 18, 48: 6, 32: 3, 24: 1},
        (11.1, 21.9),
    ),
    "VSA 720p (4,4,4)": ((21, 45, 80), (4, 4, 4), {64: 1100, 16: 320, 4: 20}, (59.0, 100.0)),
    "VSA 720p (4,8,8)": (
        (21, 45, 80),
        (4, 8, 8),
        {256: 250, 160: 50, 64: 50, 40: 10},
        (10.5, 16.7),
    ),
}


def padding(sizes):
    """In percent, over blocks that are not empty."""
    filled = sizes[sizes > 0]
    return round(100 * (1 - int(filled.sum()) / (128 * len(filled))), 1)


@pytest.mark.parametrize("name", TABLE_2)
def test_fragmentation(name):
    grid, cube, tiles, expected = TABLE_2[name]
    tiling = layouts.tiling(grid, cube)
    found = tiling.tile_sizes.unique(return_counts=True)
    assert dict(zip(*(x.tolist() for x in found), strict=True)) == tiles
    sizes = tiling.block_sizes
    partial = round(100 * int((sizes < 128).sum()) / len(sizes), 1)
    assert (padding(sizes), partial) == expected
    filled = {size: math.ceil(size / 128) for size in tiles}
    assert len(sizes) == sum(count * filled[size] for size, count in tiles.items())


# Clusters are drawn, not the paper's traces: Q and K/V padding as drawn.
@pytest.mark.parametrize(
    "name, q_padding, kv_padding",
    [("svg2-480p-300-1000", 35.0, 74.4), ("svg2-720p-100-500", 7.7, 28.4)],
)
def test_fragmentation_of_clusters(name, q_padding, kv_padding):
    arguments = layouts.named(name)
    found = [padding(arguments[side]) for side in ("q_block_sizes", "kv_block_sizes")]
    assert found == [q_padding, kv_padding]


@pytest.mark.parametrize("cube, tiles", [((6, 8, 8), (2, 2, 3)), ((2, 4, 4), (4, 3, 5))])
def test_sta(cube, tiles):
    grid = tuple(c * n - (c > 4) for c, n in zip(cube, tiles, strict=True))
    tiling = layouts.tiling(grid, cube, suffix=(130,))
    windows = [(3, 3, 3), (1, 1, 5), (5, 3, 1), (2, 4, 9)]
    arguments = layouts.sta.layout(tiling, windows, batch=2)
    of_cubes = [rules.window_lists(tiling.cubes, w) for w in windows]
    of_tiles = [rules.with_segments(x, 0, tiling.suffix_tiles) for x in of_cubes]
    expected = rules.expected_lists([of_tiles, of_tiles], tiling.tile_sizes.tolist())
    assert rules.lists(arguments) == expected
    for window, seen in zip(windows, of_tiles, strict=True):
        found = layouts.sta.window_map(tiling, window)
        assert [row.nonzero()[:, 0].tolist() for row in found] == seen


@pytest.mark.parametrize("text", [0, 40])
def test_svg1_band_and_sink(text):
    frames, frame = 6, 90
    video = frames * frame
    for rule in (layouts.svg1.WAN, layouts.svg1.HUNYUAN, {"density": 0.6}):
        rule = {"density": 0.3, "first_frame_sink": True, "band_up": True, **rule}
        tokens = video + text
        of_video = max(rule["density"] - 2 * text / tokens, 0)
        reach = tokens * (1 - math.sqrt(1 - of_video)) / 128
        band = 128 * (math.ceil(reach) if rule["band_up"] else math.floor(reach))
        at = torch.arange(video)
        apart = (at[:, None] - at).abs()
        seen = apart <= band if rule["band_up"] else apart < band
        if rule["first_frame_sink"]:
            seen = seen | (at < frame)
        blocks = rules.chunks(video, 128)
        of_cubes = [
            [
                j
                for j in range(len(blocks))
                if i == j or seen[128 * i : 128 * i + 128, 128 * j : 128 * j + 128].any()
            ]
            for i in range(len(blocks))
        ]
        expected = rules.with_segments(of_cubes, 0, 1 if text else 0)
        arguments = layouts.svg1.layout(frames, frame, text_tokens=text, heads=2, **rule)
        assert rules.lists(arguments) == [[expected, expected]]
        assert arguments["q_block_sizes"].tolist() == blocks + ([text] if text else [])


@pytest.mark.parametrize("frame", [1, 15, 16, 17, 42, 43, 63, 64, 65, 127, 128, 129, 170, 200])
def test_no_list_is_empty(frame):
    """Neither of a last block of few rows, nor of short frames, nor where a band is no block wide."""
    for made in (layouts.radial, layouts.svg1):
        for rule in (made.WAN, made.HUNYUAN):
            arguments = made.layout(4, frame, heads=1, **rule)
            own = [i in ids for i, ids in enumerate(rules.lists(arguments)[0][0])]
            assert all(own) and len(own) == math.ceil(4 * frame / 128)


def test_token_major_order():
    order = layouts.svg1.token_major(3, 4, 2)
    assert order.token_of_row.tolist() == [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, 12, 13]
    assert order.row_of_token[order.token_of_row.long()].tolist() == list(range(14))
    mixed = layouts.svg1.order_of_heads(torch.tensor([[False, True]]), order)
    assert mixed.token_of_row[0, 0].tolist() == list(range(14))
    assert torch.equal(mixed.token_of_row[0, 1], order.token_of_row)
    assert torch.equal(mixed.row_of_token[0, 1], order.row_of_token)


@pytest.mark.parametrize("frames, frame", [(6, 150), (2, 200), (4, 128), (3, 42), (5, 100)])
def test_radial(frames, frame):
    """Block pairs within frame pairs whose windows fill them, as the C++ geometry documents it."""
    for rule in (layouts.radial.WAN, layouts.radial.HUNYUAN):
        count = math.ceil(frames * frame / 128)
        seen = torch.eye(count, dtype=torch.bool)
        of_block = torch.tensor(rules.chunks(frames * frame, 128))[:, None, None]
        at = torch.arange(frame)
        for i in range(frames):
            for j in range(frames):
                apart = abs(i - j)
                reach = 2.0 ** (frame.bit_length() - apart.bit_length())
                if j == 0 and rule["first_frame_sink"]:
                    width = frame
                elif reach < 128 and apart % int(128 / reach) != 0:
                    continue
                elif apart == 0:
                    width = frame
                elif apart == 1:
                    width = frame if rule["next_frame_whole"] else frame // 2
                else:
                    width = int(min(max(reach * rule["decay"], 128), frame))
                pairs = torch.zeros(count * 128, count * 128, dtype=torch.bool)
                within = (at[:, None] - at).abs() <= width
                pairs[i * frame : (i + 1) * frame, j * frame : (j + 1) * frame] = within
                rows = pairs.view(count, 128, count, 128).sum(1)  # [q blocks, k blocks, columns]
                dense, some = (3 * rows > of_block).sum(-1), (rows > 0).sum(-1)
                seen |= 5 * dense > 3 * some
        expected = [row.nonzero()[:, 0].tolist() for row in seen]
        arguments = layouts.radial.layout(frames, frame, heads=1, **rule)
        assert rules.lists(arguments) == [[expected]]


# --- Lists of tiles ---------------------------------------------------------------------------

CUBES = {"a block": (4, 4, 8), "three blocks": (4, 8, 12)}  # 4 tiles of each


def tiles_layout(cube, index, nums, dtype=torch.int64):
    """A plan of four tiles that all have one list."""
    tiling = layouts.tiling((cube[0], cube[1], 4 * cube[2]), cube)
    index = torch.tensor(index, dtype=dtype).expand(1, 1, 4, -1)
    nums = torch.tensor(nums, dtype=dtype).expand(1, 1, 4)
    return kpage.plan(**tiling.layout(index, nums))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("name", CUBES)
def test_bad_lists_of_tiles_are_errors_of_the_plan(name, dtype):
    cube, far = CUBES[name], torch.iinfo(dtype).max
    assert tiles_layout(cube, [3, 0], 2, dtype).max_list == 2 * math.ceil(math.prod(cube) / 128)
    tiles_layout(cube, [3, far], 1, dtype)  # what is past the prefix does not matter
    for wrong in (-1, 4, 11, 12, far, -far, min(1 << 32, far)):
        with pytest.raises(ValueError, match=r"q2k_block_index\[0, 0, 0, ."):
            tiles_layout(cube, [3, wrong], 2, dtype)
    for wrong in (-1, 3, far, -far):
        with pytest.raises(ValueError, match=r"q2k_block_nums\[0, 0, 0\]"):
            tiles_layout(cube, [3, 0], wrong, dtype)
    with pytest.raises(ValueError, match="q2k_block"):
        tiles_layout(cube, [1, 1, 1, 1, 1], 5, dtype)


@pytest.mark.parametrize("name", CUBES)
def test_a_map_with_too_little_room_is_an_error_of_the_plan(name):
    cube = CUBES[name]
    tiling = layouts.tiling((cube[0], cube[1], 4 * cube[2]), cube)
    tile_map = torch.ones(1, 1, 4, 4, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"q2k_block_nums\[0, 0, 0\]"):
        kpage.plan(**tiling.layout_of_map(tile_map, 3))
    kpage.plan(**tiling.layout_of_map(tile_map, 4))


def test_what_is_no_list_of_tiles():
    tiling = layouts.tiling((2, 2, 2), (1, 1, 1))
    index = torch.zeros(1, 1, 8, 3, dtype=torch.int32)
    nums = index[..., 0]
    for call, message in (
        (lambda: tiling.layout(index.float(), nums), "index: expected int32 or int64, got torch."),
        (lambda: tiling.layout(index, nums.double()), "nums: expected int32 or int64, got"),
        (lambda: tiling.layout(index[:, :, 1:], nums), r"index: expected shape \[1, 1, 8, 3\]"),
        (lambda: tiling.layout(index, nums[:, :, 1:]), r"nums: expected shape \[1, 1, 8\]"),
        (lambda: tiling.layout(index.to("meta"), nums), "index: expected a tensor with values, got"),
        (lambda: tiling.layout(index, nums.to("meta")), "nums: expected a tensor with values, got"),
        (lambda: tiling.layout(index.to_sparse(), nums), "index: expected a dense tensor"),
        (lambda: tiling.layout(index, nums, tiling.to("meta")), "kv_tiling: expected a tiling on"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


ERRORS = [
    (lambda: layouts.tiling((1, 2), (1, 1, 1)), "grid: expected 3 extents"),
    (lambda: layouts.tiling((1, 2, -3), (1, 1, 1)), r"grid\[2\]: expected at least 0, got -3"),
    (lambda: layouts.tiling((1, 2, 3), (0, 1, 1)), r"cube\[0\]: expected at least 1, got 0"),
    (lambda: layouts.tiling((1, 2, 3), (1, 1, 1), prefix=(-1,)), r"prefix\[0\]: expected"),
    (lambda: layouts.tiling((1, 2, 3), (1, 1, 1), suffix=(1, -1)), r"suffix\[1\]: expected"),
    (lambda: layouts.tiling((1, 2, 3), (1, 1, 1), placement="tight"), "placement: expected one of"),
    (lambda: layouts.tiling((1 << 20, 1 << 20, 1), (1, 1, 1)), "expected at most"),
    (lambda: layouts.linear_tiling(-1), "tokens: expected at least 0, got -1"),
    (lambda: layouts.linear_tiling(9, chunk=0), "chunk: expected at least 1, got 0"),
    (lambda: layouts.sta.layout(layouts.tiling((2, 2, 2), (1, 1, 1)), []), "windows: expected one"),
    (
        lambda: layouts.sta.layout(layouts.tiling((2, 2, 2), (1, 1, 1)), [(1, 0, 1)]),
        r"windows\[0\]\[1\]: expected at least 1, got 0",
    ),
    (
        lambda: layouts.sta.layout(layouts.tiling((2, 2, 2), (1, 1, 1)), [(1, 1, 1)], batch=0),
        "batch: expected at least 1, got 0",
    ),
    (lambda: layouts.svg1.layout(3, 50, heads=0), "heads: expected at least 1, got 0"),
    (
        lambda: layouts.linear_tiling(100).means(torch.zeros(1, 1, 99, 8)),
        "x: expected the 100 rows of the tiling or more, got 99",
    ),
    (
        lambda: layouts.linear_tiling(100).sums(torch.zeros(1, 1, 99, 8)),
        "x: expected the 100 rows of the tiling or more, got 99",
    ),
    (lambda: layouts.radial.layout(3, 50, heads=1, decay=-1.0), "decay: expected"),
    (lambda: layouts.svg1.layout(3, 50, heads=1, density=1.5), "density: expected a number in"),
    (lambda: layouts.svg1.layout(0, 50, heads=1), r"frames, frame_tokens\[0\]: expected at least 1"),
    (lambda: layouts.named("padded-5s", -1), "seed: expected at least 0, got -1"),
    (lambda: layouts.vsa.top_k(1.5, 10), r"sparsity: expected a number in \[0, 1\], got 1.5"),
]


@pytest.mark.parametrize("call, message", ERRORS)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_types_of_extents():
    with pytest.raises(TypeError, match=r"grid\[0\]: expected an int, got float"):
        layouts.tiling((1.5, 2, 3), (1, 1, 1))
    with pytest.raises(TypeError, match="cube: expected a sequence of ints, got int"):
        layouts.tiling((1, 2, 3), 4)


def test_what_is_no_window_and_no_number():
    with pytest.raises(TypeError, match=r"windows: expected a sequence of \(t, h, w\), got int"):
        layouts.sta.layout(layouts.tiling((2, 2, 2), (1, 1, 1)), 3)
    with pytest.raises(TypeError, match="tiling: expected Tiling, got tuple"):
        layouts.sta.layout((2, 2, 2), [(1, 1, 1)])
    with pytest.raises(TypeError, match="decay: expected a number, got str"):
        layouts.radial.layout(3, 50, heads=1, decay="fast")
    with pytest.raises(TypeError, match="density: expected a number, got NoneType"):
        layouts.svg1.layout(3, 50, heads=1, density=None)
