"""The architecture of a stack as one picture: an SVG file that needs nothing else, in light and in dark.

Clusters with their node pools, the pipelines' Jobs and services on the pools that take them, from top to bottom in
the order in which they can run, and the identities through which the clusters reach the store.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import jinja2

from infra.review.stack import Stack
from offline.picture.layout import STYLES, clean, layout
from offline.picture.scene import about, scene

TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).resolve().parent),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=jinja2.StrictUndefined,
)
"""One for all pictures of a process: compiling the template takes longer than filling it in."""
TEMPLATES.filters.update(number=lambda value: f"{value:g}", clean=clean)


def picture(stack: Stack, phases: Mapping[str, str] | None = None) -> str:
    """The picture of ``stack``: the same text for the same stack.

    ``phases`` says of Jobs that were run, by their URNs, how they ended: ``succeeded``, ``unchanged``, ``failed``,
    ``interrupted`` or ``not-run``.
    """
    content = scene(stack, phases)
    placed = layout(content)
    return TEMPLATES.get_template("picture.svg.j2").render(
        name=clean(content.title),
        about=clean(about(content)),
        picture=placed,
        styles=STYLES,
        phases=bool(phases),
        kinds={word for box in placed.boxes for word in box.kind.split()},
        width=math.ceil(placed.width),
        height=math.ceil(placed.height),
    )
