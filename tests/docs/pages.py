"""The README and the pages of the documentation as texts, those included that are made from the code."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.documentation import AT_ROOT, generated

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: the page's path, its number there, its language and its text, not indented."""

    page: str
    number: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.number}"


@cache
def pages() -> dict[str, str]:
    """Every page by its path, as it is in the repository, or as the site has it if it is made."""
    written = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), *(ROOT / name for name in AT_ROOT.values())]
    found = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in written}
    made = {f"docs/{path}": text for path, text in generated() if path.endswith(".md") and path not in AT_ROOT}
    return found | made


@cache
def blocks() -> tuple[Block, ...]:
    """All fenced blocks of all pages."""
    found = []
    for page, text in pages().items():
        fences = re.findall(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
        for number, (indent, language, inner) in enumerate(fences):
            found.append(Block(page, number, language, re.sub(f"^{indent}", "", inner, flags=re.MULTILINE)))
    return tuple(found)


def command_lines() -> list[tuple[Block, str]]:
    """Every line of a shell block, with its continuations, without comments and without what only shows a usage."""
    found = []
    for block in blocks():
        if block.language in ("", "sh", "bash"):
            for line in block.text.replace("\\\n", " ").splitlines():
                line = re.sub(r"(^|\s)#.*", "", line).strip()
                if line and not re.search(r"\[-|\[MODEL|\.\.\.", line):
                    found.append((block, line))
    return found
