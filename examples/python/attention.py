"""A video's tokens in 2 x 8 x 8 cubes, each cube attending to the 12 nearest in mean key: plan once,
attend, and take gradients. Runs on the GPU where there is one."""

import kpage
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
batch, heads, head_dim = 1, 4, 64
grid, cube = (7, 20, 26), (2, 8, 8)

# Cubes at the edges of the grid have fewer tokens: block b holds sizes[b] rows from row 128 * b.
edges = [torch.arange(0, g, c) for g, c in zip(grid, cube, strict=True)]
extent = [torch.clamp(g - e, max=c) for e, g, c in zip(edges, grid, cube, strict=True)]
sizes = torch.cartesian_prod(*extent).prod(-1).to(torch.int32).to(device)
blocks = len(sizes)

q, k, v = (
    torch.randn(batch, heads, 128 * blocks, head_dim, device=device, dtype=torch.bfloat16)
    for _ in range(3)
)
q.requires_grad_()

valid = torch.arange(128, device=device) < sizes[:, None]
means = [
    torch.where(valid[..., None], x.unflatten(2, (blocks, 128)), 0).sum(3) / sizes[:, None]
    for x in (q.detach().float(), k.float())
]
index = (means[0] @ means[1].mT).topk(12).indices.to(torch.int32)
nums = torch.full((batch, heads, blocks), 12, dtype=torch.int32, device=device)

plan = kpage.plan(index, nums, sizes)
out, lse = kpage.attention(q, k, v, plan, return_lse=True)
out.float().square().sum().backward()

stats = plan.stats()
print(f"{blocks} blocks, {stats['q_rows'] // heads} tokens of {128 * blocks} rows")
print(f"useful work: {stats['useful_pairs'] / stats['whole_block_pairs']:.1%} in whole blocks,")
print(f"             {stats['efficiency']:.1%} in pages")
print(f"output {tuple(out.shape)}, gradient of q {q.grad.float().norm():.1f}")
