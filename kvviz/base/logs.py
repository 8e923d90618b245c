"""Logs of the server and its worker, a line an event, on standard error: JSON, or text on a terminal.

No line holds what a user wrote, what a model wrote, a path or a browser's name. Our events have named fields. Of a
library's message the unfilled sentence is kept; of an exception its kind and its place, never its message, which may
quote anything. `KVVIZ_LOG` takes json or text, and a level: "json,debug".
"""

import json
import logging
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from kvviz.base.errors import KvvizError

FORMS = ("json", "text")
LEVELS = ("debug", "info", "warning", "error")
FRAMES = 12  # of an exception, the innermost


def event(log: logging.Logger, name: str, level: int = logging.INFO, /, **fields: object) -> None:
    """Log that something happened. The fields are for numbers, ids and words of our own alone."""
    log.log(level, name, extra={"fields": fields})


def set_up(process: str) -> None:
    """Log as `process` (server, worker) from here on, with uncaught exceptions and the libraries loaded so far.

    Raises KvvizError for a KVVIZ_LOG that can't be read.
    """
    form, level = read_choice(os.environ.get("KVVIZ_LOG", ""))
    handler = logging.StreamHandler(sys.stderr)
    in_text = form == "text" or (not form and sys.stderr.isatty())
    handler.setFormatter(_Line(process, in_text))
    logging.setLogRecordFactory(SafeRecord)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("kvviz").setLevel(level.upper())
    warnings.showwarning = _library_warned
    sys.excepthook = _uncaught
    threading.excepthook = lambda args: _uncaught(args.exc_type, args.exc_value, args.exc_traceback)
    sys.unraisablehook = lambda args: _uncaught(args.exc_type, args.exc_value, args.exc_traceback)
    _redirect_libraries()


def read_choice(text: str) -> tuple[str, str]:
    """The form ("" for the one that suits standard error) and the level that KVVIZ_LOG asks for."""
    form, level = "", "info"
    for word in filter(None, (part.strip().lower() for part in text.split(","))):
        if word in FORMS:
            form = word
        elif word in LEVELS:
            level = word
        else:
            raise KvvizError(f"KVVIZ_LOG is {text[:80]!r}; it takes {' or '.join(FORMS)}, and {', '.join(LEVELS)}")
    return form, level


def _redirect_libraries() -> None:
    """Send the libraries' logs through our handler."""
    for name in list(logging.root.manager.loggerDict):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        if not name.startswith("kvviz"):
            logger.setLevel(max(logger.level, logging.WARNING))


class SafeRecord(logging.LogRecord):
    """A log record that can't hold what a user wrote, whatever handler and format it meets."""

    def __init__(self, name: str, level: int, path: str, line: int, msg: object, args: object, exc: Any, *_: object):
        self.sentence = _unfilled(msg, args)
        self.failure = _failure(*exc) if exc and exc[0] is not None else {}
        words = f"{self.sentence} ({self.failure['error']})" if self.failure else self.sentence
        super().__init__(name, level, path, line, words, (), None)


def _unfilled(msg: object, args: object) -> str:
    """The first line of a message with its numbers filled in, and nothing else."""
    sentence = (msg if isinstance(msg, str) else type(msg).__name__).partition("\n")[0][:200]
    values = args if isinstance(args, tuple) else (args,)
    shown = tuple(value if isinstance(value, int | float) else "…" for value in values)
    try:
        return sentence % shown if args else sentence
    except (TypeError, ValueError):
        return sentence


def _failure(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> dict[str, object]:
    """An exception without its message: its kind, its causes, and where it was raised, innermost frame last."""
    causes = [type(cause).__name__ for cause in _causes(error)]
    frames = traceback.extract_tb(trace)[-FRAMES:]
    at = [f"{_place(frame.filename, frame.lineno)} {frame.name}" for frame in frames]
    return {"error": kind.__name__, **({"because": causes} if causes else {}), "at": at}


def _place(file: str, line: int | None) -> str:
    return f"{'/'.join(Path(file).parts[-3:])}:{line}"


def _causes(error: BaseException | None) -> Iterable[BaseException]:
    seen = set()
    while error is not None and (error := error.__cause__ or error.__context__) is not None and id(error) not in seen:
        seen.add(id(error))
        yield error


def _uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if error is not None and not issubclass(kind, KeyboardInterrupt):
        logging.getLogger("kvviz").error("uncaught", exc_info=(kind, error, trace))


def _library_warned(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object, **__: object
) -> None:
    at = _place(filename, lineno)
    event(logging.getLogger("kvviz"), "library_warned", logging.WARNING, kind=category.__name__, at=at)


class _Line(logging.Formatter):
    def __init__(self, process: str, in_text: bool) -> None:
        super().__init__()
        self._process, self._in_text = process, in_text

    def format(self, record: logging.LogRecord) -> str:
        """JSON fields, or words; `event` is a name of ours, or a library's sentence beside the library's name."""
        fields: dict[str, object] = {
            "time": time.strftime(f"%Y-%m-%dT%H:%M:%S.{int(record.msecs):03d}Z", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "process": self._process,
            "event": getattr(record, "sentence", ""),
            **({} if record.name.startswith("kvviz") else {"library": record.name.partition(".")[0]}),
            **getattr(record, "fields", {}),
            **getattr(record, "failure", {}),
        }
        if not self._in_text:
            return json.dumps(fields, ensure_ascii=False)
        when = time.strftime("%H:%M:%S", time.localtime(record.created))
        head = [when, *(str(fields.pop(name)) for name in ("level", "process", "event"))]
        return " ".join([*head, *(f"{name}={value}" for name, value in fields.items() if name != "time")])


def quieten_profiler() -> None:
    """Have torch's profiler and allocator write no line at each start; called before torch is imported."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
