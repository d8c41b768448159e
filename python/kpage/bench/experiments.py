"""What packing and routing are worth: the same kernels on variants of a layout."""

import torch

import kpage
from kpage.bench.cases import Case
from kpage.bench.own import Planned
from kpage.bench.reference import Reference
from kpage.bench.results import FLOPS

ACCOUNTED = (
    "useful_pairs",
    "whole_block_pairs",
    "paged_pairs",
    "routed_pairs",
    "paged_tail_pairs",
    "routed_tail_pairs",
)
_BLOCK = 128
_PAGE = 16


def account(bench, name):
    """Pairs before and after packing and routing (paper 4.4, Figure 6). Nothing is timed."""
    case = Case(name, bench.device)
    plan = kpage.plan(**case.layout)
    figures = plan.stats()
    sizes = case.kv_sizes[case.kv_sizes > 0]
    bench.results.note(
        **{key: value for key, value in case.common.items() if key != "useful_pairs"},
        kernel="kpage",
        exact=True,
        **{"pass": "accounting"},
        **{key: figures[key] for key in ACCOUNTED},
        efficiency=figures["efficiency"],
        blocks=case.q_blocks,
        padding=1.0 - float(sizes.sum()) / (_BLOCK * len(sizes)),
        partial=float((sizes < _BLOCK).double().mean()),
        density=case.useful_pairs / float((case.q_sizes.sum(1) * case.kv_sizes.sum(1)).sum()),
    )


def placed(host):
    """The layout with block b at row 128 * b, so that its sizes may be changed."""
    if host["kv_block_sizes"] is not None or host["q_block_sizes"].dim() != 1:
        raise ValueError("expected a layout with one partition")
    return {**host, "q_block_offsets": None}


def ablate(bench, name):
    """Packing and routing one at a time. Where they are off, padding rows are computed as if they
    were valid, as a kernel of whole tiles does before it masks them: the same work, another result.
    """
    host = placed(Case(name, bench.device).host)
    full = torch.full_like(host["q_block_sizes"], _BLOCK)
    partition = {"kv_block_sizes": host["q_block_sizes"], "kv_block_offsets": None}
    variants = {
        "whole tiles": {**host, "q_block_sizes": full},
        "packing": {**host, **partition, "q_block_sizes": full},
        "routing": {**host, "kv_block_sizes": full},
        "packing and routing": host,
    }
    _compare(bench, name, variants, exact=("packing and routing",))


def load(bench, name):
    """A full layout whose key/value blocks are loaded whole, or whose rows lie apart in pieces,
    down to a page each: the same pairs, tiles and owners (paper 3.2.3)."""
    host = Case(name, bench.device).host
    if not bool((host["q_block_sizes"] == _BLOCK).all()):
        raise ValueError("expected a full layout")
    host = placed(host)
    variants = {"whole blocks": host}
    for rows in (64, 32, _PAGE):
        variants[f"pieces of {rows} rows"] = _cut(host, rows)
    _compare(bench, name, variants, exact=variants)


def order(bench, name):
    """Query and key/value blocks numbered as they lie, or at random, where they stay: the same
    pairs, but CTAs and owners in flight have nothing in common any more."""
    host = Case(name, bench.device).host
    variants = {"blocks as they lie": host, "blocks at random": _shuffled(host)}
    _compare(bench, name, variants, exact=variants)


def _shuffled(host, seed=3):
    """The same blocks under other numbers."""
    sizes, offsets = host["q_block_sizes"], host["q_block_offsets"]
    if host["kv_block_sizes"] is not None or sizes.dim() != 1:
        raise ValueError("expected a layout with one partition")
    if offsets is None:
        offsets = _BLOCK * torch.arange(len(sizes), dtype=torch.int32)
    old = torch.randperm(len(sizes), generator=torch.Generator().manual_seed(seed))
    new = old.argsort().to(torch.int32)
    nums = host["q2k_block_nums"][:, :, old]
    index = host["q2k_block_index"][:, :, old]
    listed = torch.arange(index.shape[-1]) < nums[..., None]
    lists = torch.where(listed, new[torch.where(listed, index, 0).long()], 0)
    return {
        **host,
        "q2k_block_index": lists.contiguous(),
        "q2k_block_nums": nums.contiguous(),
        "q_block_sizes": sizes[old].contiguous(),
        "q_block_offsets": offsets[old].contiguous(),
    }


def _cut(host, rows, seed=3):
    """Key/value blocks cut to pieces of `rows` that lie at random places. Pieces of a block have
    numbers that follow each other, so that one owner holds them."""
    index = host["q2k_block_index"].long()
    blocks = len(host["q_block_sizes"])
    pieces = _BLOCK // rows
    generator = torch.Generator().manual_seed(seed)
    offsets = rows * torch.randperm(blocks * pieces, generator=generator)
    lists = (pieces * index[..., None] + torch.arange(pieces)).flatten(-2)
    return {
        **host,
        "q2k_block_index": lists.to(torch.int32).contiguous(),
        "q2k_block_nums": pieces * host["q2k_block_nums"],
        "kv_block_sizes": torch.full((blocks * pieces,), rows, dtype=torch.int32),
        "kv_block_offsets": offsets.to(torch.int32),
    }


def _errors(planned):
    reference = Reference(planned.case)
    with torch.no_grad():
        attended = kpage.attention(*planned.case.tensors, planned.plan, return_lse=True)
    gradients = reference.gradient_errors(*planned.forward_backward())
    return {**reference.forward_errors(*attended), "gradient_error": max(gradients.values())}


def _compare(bench, name, variants, exact):
    """Variants of one layout beside each other; useful pairs are those of the layout itself."""
    planned = {
        label: Planned(Case(name, bench.device, host=host)) for label, host in variants.items()
    }
    useful = min(item.case.useful_pairs for item in planned.values())
    errors = {label: _errors(planned[label]) for label in exact}
    for step in ("forward", "forward+backward"):
        times = bench.measure(
            {
                label: item.forward if step == "forward" else item.forward_backward
                for label, item in planned.items()
            }
        )
        base = next(iter(times.values()))
        for label, item in planned.items():
            stats = item.plan.build_backward().stats()
            executed = "routed_tail_pairs" if step == "forward" else "backward_tail_pairs"
            bench.results.add(
                layout=name,
                useful_pairs=useful,
                head_dim=item.case.head_dim,
                heads=item.case.heads,
                kernel=f"kpage, {label}",
                exact=label in exact,
                **{"pass": step},
                **times[label].fields(),
                **errors.get(label, {}),
                executed_pairs=stats[executed],
                executed_tflops=FLOPS[step]
                * stats[executed]
                * item.case.head_dim
                / times[label].sustained
                / 1e9,
                of_first=times[label].sustained / base.sustained,
                of_first_rested=times[label].rested / base.rested,
            )
