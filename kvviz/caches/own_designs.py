"""Users' own cache designs: Python files in the folder that KVVIZ_DESIGNS names, one design a file. No torch here.

`read` takes a design's words from the text of its file without running it, so that a server can list it. `load` runs
the file; only the process that measures, and the command line, do that. A changed file is run anew at its next use.
"""

import ast
import os
import re
import signal
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kvviz.base.errors import KvvizError, in_a_line

if TYPE_CHECKING:
    from kvviz.caches.base import KVCache

NAME = r"[a-z][a-z0-9_-]{0,30}"
LARGEST = 200_000  # bytes of a file
LONGEST_S = 30.0  # that a file may take to be loaded
# what the class may say of itself, and of which type
_WORDS: Mapping[str, type] = {
    **dict.fromkeys(("title", "summary", "source", "slow", "less", "windows"), str),
    **dict.fromkeys(("exact", "reads"), bool),
}
_WINDOWS = ("own", "ring", "theirs")


@dataclass(frozen=True)
class Found:
    """What the designs' folder has: the words of each design by its name, and why a file was left out, by its name."""

    designs: Mapping[str, Mapping[str, Any]]
    left_out: Mapping[str, str]


def find(folder: str | None, taken: Collection[str]) -> Found:
    """Read every design in a folder, those apart whose name is `taken`; nothing without a folder. Never raises."""
    designs, left_out = dict[str, Mapping[str, Any]](), dict[str, str]()
    for path in sorted(Path(folder).expanduser().absolute().glob("*.py")) if folder else ():
        try:
            check_name(path.stem, taken)
            designs[path.stem] = read(path)
        except KvvizError as error:
            left_out[path.name] = str(error)
    return Found(designs, left_out)


def check_name(name: str, taken: Collection[str]) -> None:
    """Raise KvvizError for a name that a user's design can't have."""
    if not re.fullmatch(NAME, name):
        raise KvvizError(
            f"a design's name is {name[:60]!r}; it is up to 31 lower-case letters, digits, - and _, a letter first"
        )
    if name in taken:
        raise KvvizError(f"there is a mode called {name} already; choose another name")


def read(path: Path) -> Mapping[str, Any]:
    """The fields of a design's row, from the last class of its file, which is not run. Raises KvvizError."""
    try:
        if path.stat().st_size > LARGEST:
            raise KvvizError(f"{path.name} is longer than {LARGEST:,} bytes; a design is a short file")
        tree = ast.parse(path.read_bytes())
    except OSError as error:
        raise KvvizError(f"{path.name} can't be read ({type(error).__name__})") from error
    except SyntaxError as error:
        raise KvvizError(f"{path.name} is no Python yet: line {error.lineno or 1}, {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise KvvizError(f"{path.name} is no Python file ({in_a_line(error)})") from error
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    if not classes:
        raise KvvizError(f"{path.name} has no class; `kvviz new-cache` writes one to start from")
    said = {name: value for name, value in _assigned(classes[-1]) if name in _WORDS}
    for name, value in said.items():
        if not isinstance(value, _WORDS[name]) or (isinstance(value, str) and not _is_line(value)):
            kind = "True or False" if _WORDS[name] is bool else "a text of one line"
            raise KvvizError(f"{path.name}: {name} in class {classes[-1].name} is {value!r}; it is {kind}")
    if said.get("windows", "own") not in _WINDOWS:
        raise KvvizError(f"{path.name}: windows is {said['windows']!r}; it is one of {', '.join(_WINDOWS)}")
    usual = {"title": path.stem, "summary": f"a design of your own, in {path.name}", "source": ""}
    return {**usual, **said, "cls": f"{path}:{classes[-1].name}"}


def _assigned(node: ast.ClassDef) -> Iterator[tuple[str, object]]:
    """Yield the names that a class's body gives a value, with the value of a constant, or None."""
    for line in node.body:
        if isinstance(line, ast.Assign | ast.AnnAssign):
            for target in line.targets if isinstance(line, ast.Assign) else [line.target]:
                if isinstance(target, ast.Name):
                    yield target.id, line.value.value if isinstance(line.value, ast.Constant) else None


def _is_line(text: str) -> bool:
    return 0 < len(text) <= 300 and text.isprintable()


_loaded: dict[str, tuple[tuple[int, int], "type[KVCache]"]] = {}  # by `cls`: the file's time and size, and its class


def load(cls: str, exact: bool) -> "type[KVCache]":
    """The class that a row's `cls` names, "file:class", from its file as it is now. Raises KvvizError.

    It has to be as `exact` as its row says.
    """
    from kvviz.caches.base import KVCache

    file, _, name = cls.rpartition(":")
    path = Path(file)
    try:
        stat = path.stat()
    except OSError as error:
        raise KvvizError(f"{path.name} can't be read ({type(error).__name__})") from error
    stamp = (stat.st_mtime_ns, stat.st_size)
    if cls not in _loaded or _loaded[cls][0] != stamp:
        found = getattr(_module(path), name, None)
        if not (isinstance(found, type) and issubclass(found, KVCache)):
            raise KvvizError(f"class {name} in {path.name} is no KVCache; write class {name}(InTensors)")
        if unwritten := sorted(getattr(found, "__abstractmethods__", ())):
            raise KvvizError(
                f"class {name} in {path.name} lacks {', '.join(unwritten)}; kvviz/caches/base.py says what"
            )
        if found.exact != exact:
            raise KvvizError(
                f"class {name} in {path.name} is exact = {found.exact} by now, and kvviz has read {exact}: write it in "
                "the class itself, and start kvviz anew"
            )
        _loaded[cls] = stamp, found
    return _loaded[cls][1]


def _module(path: Path) -> ModuleType:
    """Run a file as a module of its own: the only place where kvviz runs what it reads.

    It leaves no bytecode, which would hide a change within the same second.
    """
    module = ModuleType(f"kvviz_own_{path.stem.replace('-', '_')}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        with _in_time():
            exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
    except _TooLongError as error:
        where = _line_of(error, path) or path.name
        raise KvvizError(f"{path.name} can't be loaded: after {LONGEST_S:g} s it was still running {where}") from error
    except (Exception, SystemExit) as error:
        raise KvvizError(f"{path.name} can't be loaded: {blamed(error, path)}") from error
    return module


class _TooLongError(BaseException):
    """A file takes too long; no Exception, which the file itself may well catch."""


@contextmanager
def _in_time() -> Iterator[None]:
    """Stop what the main thread does here after LONGEST_S; another thread can't be stopped, and runs on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def blamed(error: BaseException, path: Path) -> str:
    """An error of a design's code in a line, with the last line of its file that led to it."""
    where = _line_of(error, path)
    return (f"{where}: " if where else "") + in_a_line(error)


def _line_of(error: BaseException, path: Path) -> str:
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"line {line} of {path.name}" if line else ""


def folder() -> str | None:
    """The folder that KVVIZ_DESIGNS names."""
    return os.environ.get("KVVIZ_DESIGNS") or None
