"""The fifteen bricks that every transformer has, their categories, and other names for them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

Category = Literal["Norm", "Attention", "FFN", "Other"]
CATEGORIES: tuple[Category, ...] = get_args(Category)

KNOWN: Mapping[str, Category] = MappingProxyType(
    {
        "RmsNorm": "Norm",
        "LayerNorm": "Norm",
        "QkvProjection": "Attention",
        "RopeEmbedding": "Attention",
        "AttentionScore": "Attention",
        "AttentionSoftmax": "Attention",
        "AttentionOutput": "Attention",
        "OutputProjection": "Attention",
        "GateProjection": "FFN",
        "UpProjection": "FFN",
        "Activation": "FFN",
        "DownProjection": "FFN",
        "Embedding": "Other",
        "LmHead": "Other",
        "Sampling": "Other",
    }
)
"""The known bricks and the category of each."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "Qkv": "QkvProjection",
        "Rope": "RopeEmbedding",
        "RoPE": "RopeEmbedding",
        "Softmax": "AttentionSoftmax",
        "OutProj": "OutputProjection",
        "Gate": "GateProjection",
        "Up": "UpProjection",
        "SiLU": "Activation",
        "GELU": "Activation",
        "ReLU": "Activation",
        "Down": "DownProjection",
        "Embed": "Embedding",
        "Head": "LmHead",
        "Sample": "Sampling",
    }
)
"""Other names by which engines call known bricks."""
LONGEST_NAME = 256
"""Characters that a brick, a lane or a kernel may be called by."""


def is_name(name: object) -> bool:
    """Return whether a brick, a lane or a kernel can be called so."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def canonical(name: str) -> str:
    """Return the known brick that ``name`` is an alias of, else ``name`` itself."""
    return ALIASES.get(name, name)


def category_of(name: str) -> Category:
    """Return the category of a known brick or alias; ``Other`` for any other name."""
    return KNOWN.get(canonical(name), "Other")
