"""What a step tells the pipeline that runs it."""

import os
from pathlib import Path


def append(variable: str, text: str) -> None:
    """Adds ``text`` to the file that this variable names, such as GITHUB_OUTPUT, where it names one."""
    if path := os.environ.get(variable):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")


def fenced(text: str) -> str:
    """Text as a Markdown block that nothing in it can end."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text.rstrip()}\n{fence}"
