"""A report as one page of HTML, which opens from disk without anything beside it."""

import base64
import html
import importlib.util
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from declutr.evaluation.report.contents import Contents
from declutr.evaluation.report.plots.style import STYLE

HOW_TO_GET = "report.html needs markdown-it-py: pip install 'declutr[tables]'."
"""The message that tells how to install what the page needs."""
_PIXELS_PER_INCH = 96  # of CSS
_MARK = re.compile(r"[^<>]+\[[a-z_0-9]+:table\w+\]")  # the label of a row that is quoted
_SUMMARY = re.compile(r"<p>&lt;details&gt;&lt;summary&gt;([\w ]+)&lt;/summary&gt;</p>")


def available() -> bool:
    """Return whether markdown-it-py is installed."""
    return importlib.util.find_spec("markdown_it") is not None


def page(report: Contents, markdown: str) -> str:
    """Return the page: pictures inside, tables that can be sorted, a table of contents.

    Names of encoders and other text cannot bring HTML, scripts or addresses of their own: the page
    loads nothing, and the report's HTML is known.

    # Raises

    `ModuleNotFoundError` : markdown-it-py is not installed.
    """
    if not available():
        raise ModuleNotFoundError(HOW_TO_GET)
    from markdown_it import MarkdownIt

    pictures = {
        picture.path.relative_to(report.folder).as_posix(): picture.path
        for picture in report.pictures
    }
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(markdown)
    sections: list[str] = []
    for token, inside in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "heading_open" and token.tag == "h2" and inside is not None:
            token.attrSet("id", f"section-{len(sections) + 1}")
            sections.append(inside.content)
    _with_pictures(tokens, pictures)
    content = parser.renderer.render(tokens, parser.options, {})
    content = _SUMMARY.sub(r"<details><summary>\1</summary>", content)
    content = content.replace("<p>&lt;/details&gt;</p>", "</details>")
    content = content.replace("<table>", '<div class="wide"><table>')
    content = content.replace("</table>", "</table></div>")
    for cell in ("td", "th"):
        content = re.sub(
            rf"(<{cell}[^>]*)>((?:<strong>)?{_MARK.pattern}(?:</strong>)?)(?=</{cell}>)",
            r'\1 class="quoted">\2',
            content,
        )
    links = (
        f'<a href="#section-{number}">{html.escape(title)}</a>'
        for number, title in enumerate(sections, start=1)
    )
    content = content.replace("</h1>", f"</h1>\n<nav>{' '.join(links)}</nav>", 1)
    template = Template(files("declutr.evaluation.report").joinpath("page.html").read_text("utf-8"))
    return template.safe_substitute(title="Sentence embeddings", content=content)


def _with_pictures(tokens: list[Any], pictures: Mapping[str, Path]) -> None:
    """Put pictures in place of their addresses, in the size that they were drawn in.

    Any other address goes.
    """
    for token in tokens:
        if token.type == "image":
            picture = pictures.get(str(token.attrGet("src")))
            token.attrSet("src", "" if picture is None else _data(picture))
            if picture is not None and (width := _png_width(picture)):
                token.attrSet("width", str(round(width * _PIXELS_PER_INCH / STYLE["savefig.dpi"])))
        elif token.children:
            _with_pictures(token.children, pictures)


def _data(picture: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture.read_bytes()).decode()}"


def _png_width(picture: Path) -> int:
    """Return the width of a PNG file in pixels, from its header; 0 if it is none."""
    header = picture.read_bytes()[:20]
    return int.from_bytes(header[16:], "big") if header.startswith(b"\x89PNG") else 0
