"""The file of the picture: small, and in the colours of what was shown."""

from io import BytesIO
from pathlib import Path

from PIL import Image, ImageDraw

from slipway.command.page_picture import write

GREEN = (18, 160, 102)


def test_a_small_dot_keeps_its_colour(tmp_path: Path) -> None:
    gradient = Image.linear_gradient("L").resize((920, 700))
    page = Image.merge("RGB", (gradient, gradient.rotate(180), gradient))
    ImageDraw.Draw(page).ellipse((800, 40, 812, 52), fill=GREEN)
    content = BytesIO()
    page.save(content, "PNG")
    write(content.getvalue(), tmp_path / "page.png")
    with Image.open(tmp_path / "page.png") as written:
        assert written.mode == "P"
        shown = written.convert("RGB").getpixel((806, 46))
    assert isinstance(shown, tuple)
    assert max(abs(one - other) for one, other in zip(shown, GREEN, strict=True)) < 16
