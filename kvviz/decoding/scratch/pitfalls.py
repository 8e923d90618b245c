"""The mistakes of a first KV cache as a table, `pitfalls.toml`: what to look at, the line at fault, what it should be.

Standard library only, so that a page can list them; the loops themselves are in `mistakes`.
"""

import ast
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kvviz.base.errors import KvvizError

HERE = Path(__file__).parent
GROUPS = {  # of mistakes, by where their trouble is seen
    "logits": "Spoils the text",
    "memory": "Costs time and memory",
    "work": "Costs time and memory",
    "clock": "Spoils the measurement",
}


@dataclass(frozen=True)
class Pitfall:
    """A mistake and what it is held against: `loop` and `right` are functions of mistakes.py, `right` the proper one.

    `brief` says what it does in half a sentence, `says` what to look at; `wrong` and `mend` are lines of code; `parts`
    are classes that the loop needs. `shows` is where its trouble is seen: in the `logits`, the `memory`, the `work`
    done for nothing, or on the `clock`, whose loops yield seconds.
    """

    name: str
    title: str
    brief: str
    says: str
    loop: str
    wrong: str
    mend: str
    right: str = "right"
    parts: tuple[str, ...] = ()
    shows: str = "logits"

    @property
    def group(self) -> str:
        """What goes wrong, in a word or two, which several mistakes share."""
        return GROUPS[self.shows]

    @property
    def source(self) -> str:
        """The loop as it is written, with the classes that it needs."""
        return "\n\n\n".join(_definitions()[name] for name in (*self.parts, self.loop))


@cache
def _definitions() -> dict[str, str]:
    """The text of every function and class of mistakes.py."""
    text = (HERE / "mistakes.py").read_text(encoding="utf-8")
    found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return {node.name: ast.get_source_segment(text, node) or "" for node in found}


_TABLE = tomllib.loads((HERE / "pitfalls.toml").read_text(encoding="utf-8"))
PITFALLS = {name: Pitfall(name, **row) for name, row in _TABLE.items()}


def pitfall_named(name: str) -> Pitfall:
    """The row of a mistake. Raises KvvizError, which lists the names, for an unknown one."""
    if name not in PITFALLS:
        raise KvvizError(f"no mistake {name!r}; they are {', '.join(PITFALLS)}")
    return PITFALLS[name]
