"""Somebody else's text inside Markdown, shown as it is: no link, no picture, no formula, no icon."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from kvviz.base.errors import KvvizError

LONGEST = 1_000  # characters of a sentence
APART = "\u2060"  # WORD JOINER: not to be seen, and no address or icon is read across it

_MARKUP = re.compile(r"[\\`*\[\]<>~$|]|(?<!\w)_|_(?!\w)|&(?=[#\w])")
_START = re.compile(r"^(?=[#+=-])|(?<=^\d)(?=[.)])|(?<=^\d\d)(?=[.)])")
_JOINED = re.compile(r"(?<=[:@])(?=\S)|(?<=www)(?=\.)", re.IGNORECASE)


def plain(text: object, longest: int = LONGEST) -> str:
    """A text as Markdown that shows it: one line, at most so many characters, nothing in it taken for markup."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)[: 4 * longest]).split())
    short = line if len(line) <= longest else f"{line[: longest - 1]}…"
    return _START.sub(r"\\", _JOINED.sub(APART, _MARKUP.sub(r"\\\g<0>", short)))


@contextmanager
def errors_said() -> Iterator[None]:
    """Where what stands in the `with` raises KvvizError, say why on the page, in place of its rest."""
    try:
        yield
    except KvvizError as error:
        st.warning(plain(error))


@contextmanager
def failure_said() -> Iterator[None]:
    """Show a KvvizError of the `with` block as an error on the page, without a traceback.

    It is for failures that no visitor's input caused: a store that can't be read, for example.
    """
    try:
        yield
    except KvvizError as error:
        st.error(str(error))
