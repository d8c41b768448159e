"""KPage: exact block-sparse attention for video diffusion Transformers.

Pages of 16 key/value rows of different selected blocks are packed into full tiles by the loads
themselves, so that ragged blocks cost what their valid rows cost.

    plan = kpage.plan(q2k_block_index, q2k_block_nums, q_block_sizes)
    out = kpage.attention(q, k, v, plan)
"""

from kpage import layouts
from kpage._attention import attention
from kpage._library import version as _version
from kpage._plan import Plan, check_plans_eagerly, plan
from kpage.tokens import TokenOrder, tile, token_order, untile

__version__ = _version()
__all__ = [
    "Plan",
    "TokenOrder",
    "attention",
    "check_plans_eagerly",
    "layouts",
    "plan",
    "tile",
    "token_order",
    "untile",
]
