"""Writes the file that a user's own design starts from: an exercise, open or solved. No torch here."""

import re
import textwrap
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kvviz.base.errors import KvvizError
from kvviz.caches.designs import TAKEN
from kvviz.caches.own_designs import check_name

_HERE = Path(__file__).parent
_BEGIN, _OR, _END = "# solution", "# or, to start from", "# end"
_WIDTH = 110

_CALLS = """\
How kvviz calls it. Each layer of the model has an object of this class for each run, with a `window` (how many tokens \
back its attention looks; None: all of them) and a `capacity` (the most tokens of a sequence; None: unknown).

- `_append(k, v)` once for the prefill, with all T tokens of the prompt, and once for each decode step, with T = 1. \
k and v are (B, Hkv, T, D): B sequences, Hkv key/value heads (fewer than query heads, if the model groups its \
queries), T new tokens, D numbers a head (D of v may be another). It returns keys and values of all tokens to attend \
over, (B, Hkv, T_all, D), the new ones last.
- It also keeps the books: `self.seen` tokens so far, `self.held` of them still kept, `self.copied` bytes written into \
what is kept, `self.gathered` bytes put together for attention alone.
- `filled()` names every tensor that is kept: its bytes are what `formula(...)` has to give.
- `_crop(tokens)` takes the newest tokens back; `free()` releases everything.

kvviz/caches/base.py is the whole interface."""


@dataclass(frozen=True)
class Starter:
    """What can be started from: the `task`, the `goal` beyond the contract, `hints` that help one after the other."""

    title: str
    file: str
    task: str
    goal: str
    hints: tuple[str, ...]


_TABLE = tomllib.loads((_HERE / "starters.toml").read_text(encoding="utf-8"))
STARTERS: Mapping[str, Starter] = {
    name: Starter(**{**fields, "hints": tuple(fields["hints"])}) for name, fields in _TABLE.items()
}
OWN = "own"
EXERCISES: Mapping[str, Starter] = {name: starter for name, starter in STARTERS.items() if name != OWN}


def written(name: str, exercise: str = OWN, *, solved: bool = False) -> str:
    """The text of a design's file, to be filled in or solved. Raises KvvizError for a name that can't be one."""
    check_name(name, TAKEN)
    if exercise not in STARTERS:
        raise KvvizError(f"no exercise {exercise!r}; the exercises are {', '.join(EXERCISES)}")
    starter, text = STARTERS[exercise], (_HERE / f"{STARTERS[exercise].file}.py").read_text(encoding="utf-8")
    old = re.findall(r"^class (\w+)", text, re.MULTILINE)[-1]
    new = "".join(part.capitalize() for part in re.split("[-_]", name))
    text = re.sub(rf"^class {old}\b", f"class {new}", text, flags=re.MULTILINE)
    text = text.replace(f'title = "{old}"', f'title = "{name}"')
    return f'"""{_about(name, starter, solved)}\n"""\n\n{_chosen(text, solved)}'


def _about(name: str, starter: Starter, solved: bool) -> str:
    hints = "" if solved else "\n".join(["Hints, one after the other:", *(f"- {hint}" for hint in starter.hints)])
    goal = f"Beside the contract: {starter.goal}" if starter.goal else ""
    check = f"`kvviz check-cache {name}.py` says what is still missing."
    parts = (f"{starter.title}: {name}.", starter.task, goal, check, hints, _CALLS)
    lines = "\n\n".join(part for part in parts if part).split("\n")
    return "\n".join(textwrap.fill(line, _WIDTH, subsequent_indent="  " * line.startswith("- ")) for line in lines)


def _chosen(text: str, solved: bool) -> str:
    """The lines of the solution, or those to start from, which stand there as comments."""
    lines, part = list[str](), ""
    for line in text.splitlines():
        mark = line.strip()
        if mark in (_BEGIN, _OR, _END):
            part = "" if mark == _END else mark
        elif part == _OR and not solved:
            lines.append(re.sub(r"^(\s*)# ", r"\1", line))
        elif not part or (part == _BEGIN and solved):
            lines.append(line)
    return "\n".join(lines) + "\n"
