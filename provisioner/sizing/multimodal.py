"""Images in a request to a multimodal model: the tokens they add to the context, and the working memory of the tower.

Images are taken as squares of the stated number of pixels. A tower runs with a kernel whose memory grows with patches, not with
their square (flash or memory-efficient attention).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from provisioner.added_models import PREPROCESSOR_KEY
from provisioner.records import record
from provisioner.sizing.shapes import ImageLayout, ImageRule, ModelShape, Tower

USUAL_PIXELS = 1024 * 1024
"""Size of an image where the spec names none."""
HIDDEN_COPIES = 4
MLP_COPIES = 2
"""Tensors of a tower's block alive at its peak: residual, normed input, attention and MLP output; up projection and its activation."""
ACTIVATION_BYTES = 2


@record(frozen=True, slots=True)
class ImageCost:
    """What one image of a size costs."""

    tokens: int
    """Tokens of the context."""
    patches: int
    """Patches that pass through the tower."""
    cross_tokens: int = 0
    """Positions that cross-attention layers keep keys and values of."""


def image_tower(shape: ModelShape) -> Tower | None:
    """The tower that looks at images, where the model has one and it is known how."""
    return next((tower for tower in shape.towers if tower.kind == "image" and tower.images is not None), None)


def image_cost(tower: Tower, pixels: int) -> ImageCost:
    """Tokens and patches of one square image of so many pixels."""
    rule = tower.images
    if rule is None:
        raise ValueError("the tower has no rule for images")
    if rule.layout is ImageLayout.FIXED:
        return ImageCost(rule.tokens + rule.extra_tokens, rule.patches)
    if rule.layout in (ImageLayout.TILES, ImageLayout.CROSS):
        return _tiles(rule, pixels)
    unit = tower.patch_pixels * tower.merge
    side = math.sqrt(_bounded(rule, pixels))
    if rule.layout is ImageLayout.ROWS:
        rows = max(1, math.ceil(min(side, rule.tile_side) / unit))
        return ImageCost(rows * (rows + 1) + rule.extra_tokens, (rows * tower.merge) ** 2)
    rows = max(1, round(side / unit))
    return ImageCost(rows * rows + rule.extra_tokens, (rows * tower.merge) ** 2)


def _bounded(rule: ImageRule, pixels: int) -> int:
    most = rule.most_pixels or pixels
    return min(max(pixels, rule.least_pixels), most)


def _tiles(rule: ImageRule, pixels: int) -> ImageCost:
    needed = math.ceil(math.sqrt(pixels) / rule.tile_side)
    tiles = min(max(1, needed**2), rule.tiles_most)
    if rule.layout is ImageLayout.CROSS:
        return ImageCost(rule.extra_tokens, tiles * rule.patches, tiles * rule.tokens)
    shown = tiles + 1 if tiles > 1 else 1
    return ImageCost(shown * rule.tokens + rule.extra_tokens, shown * rule.patches)


def largest_pixels(tower: Tower) -> int:
    """Pixels of the largest image that reaches the tower: an engine's start-up run takes one of these."""
    rule = tower.images
    if rule is None:
        return USUAL_PIXELS
    if rule.most_pixels:
        return rule.most_pixels
    return rule.tile_side**2 * max(1, rule.tiles_most) if rule.tile_side else USUAL_PIXELS


def encoder_bytes(tower: Tower, patches: int) -> int:
    """Working set of the tower over so many patches at once."""
    elements = HIDDEN_COPIES * tower.hidden_size + MLP_COPIES * tower.intermediate_size
    return patches * elements * ACTIVATION_BYTES


def embedding_bytes(tower: Tower, tokens: int, hidden_size: int) -> int:
    """Bytes of encoded images that wait to be read by the language model."""
    levels = tower.images.levels if tower.images else 1
    return tokens * hidden_size * levels * ACTIVATION_BYTES


def with_image_limits(shape: ModelShape, config: Mapping[str, Any]) -> ModelShape:
    """The shape with the limits of the model's own image processor, where its config holds them."""
    limits = config.get(PREPROCESSOR_KEY)
    if not isinstance(limits, Mapping):
        return shape
    return replace(shape, towers=tuple(_limited(tower, limits) for tower in shape.towers))


def _limited(tower: Tower, limits: Mapping[str, Any]) -> Tower:
    rule = tower.images
    if rule is None:
        return tower
    size = limits.get("size")
    sizes = size if isinstance(size, Mapping) else {}
    if rule.layout is ImageLayout.GRID:
        least = _number(limits.get("min_pixels"), sizes.get("shortest_edge"))
        most = _number(limits.get("max_pixels"), sizes.get("longest_edge"))
        patches = _number(limits.get("in_patch_limit"))
        most = most or (patches * tower.patch_pixels**2 if patches else 0)
        return replace(
            tower,
            images=replace(
                rule,
                least_pixels=least or rule.least_pixels,
                most_pixels=most or rule.most_pixels,
                source=LIMITS_SOURCE,
            ),
        )
    if rule.layout is ImageLayout.ROWS and (side := _number(sizes.get("longest_edge"), limits.get("longest_edge"))):
        return replace(tower, images=replace(rule, tile_side=side, source=LIMITS_SOURCE))
    if rule.layout is ImageLayout.TILES and (tiles := _number(limits.get("max_patches"))):
        return replace(tower, images=replace(rule, tiles_most=tiles, source=LIMITS_SOURCE))
    return tower


LIMITS_SOURCE = "preprocessor_config.json of the model"


def _number(*values: object) -> int:
    """The first whole number above 0, or 0."""
    for value in values:
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**12:
            return value
    return 0
