"""A page's form: fields that are kept in the session, taken over from a link and written back to the address.

The browser lags behind the page in two ways, and a form has to bear both:

- The browser hears once of a value that stands only in the session's state. If it asks for the next run before it has
  mounted the widget, that value is lost and the widget comes up empty. A widget's default is told with every run, so
  each widget gets what its field holds as its default too (`value`, `within`, `choice`, `choices`).
- A rerun that the browser asked for a moment ago carries the address from before the page's last write. So an address
  that the page itself has replaced is not a link (`Address.arrived`).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from kvviz.base.errors import KvvizError
from kvviz.base.settings import settings
from kvviz.ui.shared.plain import plain

Read = Callable[[str], object]
REPLACED = 20  # addresses that a browser may still be carrying
OF_THE_FRAME = frozenset({"tour"})  # what an address says of the page's surroundings, which no page writes


def one_of(*allowed: object) -> Read:
    """Reads one of these choices; any other text raises ValueError."""
    choices = {str(choice): choice for choice in allowed}

    def read(text: str) -> object:
        if text not in choices:
            raise ValueError(text)
        return choices[text]

    return read


def some_of(*allowed: str) -> Read:
    """Reads several of these choices with commas between them; an unknown or repeated one raises ValueError."""

    def read(text: str) -> list[str]:
        names = [name for name in text.split(",") if name]
        if len(set(names)) != len(names) or not set(names) <= set(allowed):
            raise ValueError(text)
        return names

    return read


def whole(text: str) -> int:
    """Reads a whole number of at most four digits; any other text raises ValueError."""
    if not text.isascii() or not text.isdigit() or len(text) > 4:
        raise ValueError(text)
    return int(text)


@dataclass(frozen=True)
class Field:
    """One choice on a page: what it is at first, and how it travels in the address.

    A field without `read` stays out of the address. `write` returns None for a value that the address can't hold.
    """

    default: object = None
    read: Read | None = None
    write: Callable[[Any], str | None] = str
    called: str = ""  # its name in the address, where that is not the field's own


def uploaded(file: UploadedFile) -> bytes:
    """An uploaded file's bytes. Raises KvvizError if they are more than this server takes."""
    most = settings().limits.upload_bytes
    if file.size > most:
        raise KvvizError(f"this file has {file.size:,} bytes; this server takes at most {most:,}")
    return file.getvalue()


class Address:
    """What one page has written into the browser's address, and what has arrived there since."""

    def __init__(self, page: str) -> None:
        self._key = f"address_{page}"

    def arrived(self) -> dict[str, str] | None:
        """The address if this page did not write it itself: a fresh visit, a room, the browser's back button.

        None if it did, or if it has since replaced that address and the browser asked before the new one reached it,
        as happens when something on the page ends in the moment of a click. Ask once in a run: it counts.
        """
        params, written = _of_the_page(), st.session_state.get(self._key)
        if written is None:
            return params
        if params == written["last"]:
            written["seen"] += 1
            if written["seen"] > 1:  # the first time may be the page's own rerun, the second is the browser's
                written["replaced"].clear()
            return None
        return None if params in written["replaced"] else params

    def write(self, values: Mapping[str, str]) -> None:
        """Put these values into the address; what stood there does not count as a link from then on."""
        params = dict(values)
        written = st.session_state.setdefault(self._key, {"last": None, "replaced": [], "seen": 0})
        if params != written["last"]:
            replaced = [address for address in written["replaced"] if address != params]
            written.update(last=params, seen=0, replaced=replaced)
        before = _of_the_page()
        if before == params:
            return
        if before not in written["replaced"]:
            written["replaced"] = [*written["replaced"], before][-REPLACED:]
        surroundings = {name: text for name, text in st.query_params.items() if name in OF_THE_FRAME}
        st.query_params.from_dict({**params, **surroundings})

    def named(self, field: str, came: Mapping[str, str] | None) -> str | None:
        """What the address names in this field, `came` being what arrived; nothing else stays in the address."""
        written = st.session_state.get(self._key, {"last": {}})["last"]
        found = (written if came is None else came).get(field)
        self.write({field: found} if found else {})
        return found


def _of_the_page() -> dict[str, str]:
    return {name: text for name, text in st.query_params.items() if name not in OF_THE_FRAME}


class Form:
    """The fields of one page. Field `tokens` of the prefix `r_` is the session's `r_tokens`, its widget's key.

    Streamlit forgets a widget's value when another page is drawn; the form remembers it for the way back. So each
    field begins with what the link says that `came`, else with its own value of before, else with its default; a text
    that it can't read counts as not said.
    """

    def __init__(self, page: str, prefix: str, **fields: Field) -> None:
        self.address = Address(page)
        self.came = self.address.arrived()
        self._prefix = prefix
        self._fields = fields
        self._kept: dict[str, object] = st.session_state.setdefault(f"form_{page}", {})
        for name, field in fields.items():
            held = st.session_state.get(self.key(name), self._kept.get(name, field.default))
            text = self.came.get(field.called or name) if self.came and field.read else None
            if text is not None and field.read:
                with suppress(ValueError):
                    held = field.read(text)
            self[name] = held

    def key(self, name: str) -> str:
        """The key of the field's widget."""
        return self._prefix + name

    def __getitem__(self, name: str) -> Any:
        return st.session_state[self.key(name)]

    def __setitem__(self, name: str, value: object) -> None:
        key = self.key(name)
        if key not in st.session_state or st.session_state[key] != value:
            st.session_state[key] = value
        self._kept[name] = value

    def read_whole(self, read: Callable[[Mapping[str, str]], tuple[Any, Sequence[str]]]) -> Any:
        """What `read` makes of the link that came, None without one.

        `read` returns that, and what it could not read of it, in sentences for the page.
        """
        if not self.came:
            return None
        found, problems = read(self.came)
        for problem in problems:
            st.warning(plain(problem))
        return found

    def fill(self, values: Mapping[str, object]) -> None:
        """Set these fields."""
        for name, value in values.items():
            self[name] = value

    def write(self) -> None:
        """Put the fields that the address can hold into it."""
        texts = {field.called or name: field.write(self[name]) for name, field in self._fields.items() if field.read}
        self.address.write({name: text for name, text in texts.items() if text is not None})

    def _widget(self, name: str) -> dict[str, Any]:
        """What any field's widget is given: its key, and that its value stands while its tab is not open."""
        return {"key": self.key(name), "persist_state": "page"}

    def value(self, name: str) -> dict[str, Any]:
        """What a text input, a text area, a checkbox or a select slider of this field is given."""
        return {"value": self[name], **self._widget(name)}

    def within(self, name: str, least: float, most: float) -> dict[str, Any]:
        """What a number input or a slider from `least` to `most` is given; a value beyond them becomes the nearest."""
        if self[name] is not None:
            self[name] = max(least, min(most, self[name]))
        return {"min_value": least, "max_value": most, **self.value(name)}

    def choice(self, name: str, options: Sequence[object], otherwise: object = None) -> dict[str, Any]:
        """What a select box over these options is given; any other value becomes `otherwise` or the first of them."""
        if self[name] not in options:
            self[name] = otherwise if otherwise in options else options[0]
        return {"options": options, "index": options.index(self[name]), **self._widget(name)}

    def choices(self, name: str, options: Sequence[object]) -> dict[str, Any]:
        """What pills, a multiselect or a segmented control over these options are given."""
        held = self[name]
        if isinstance(held, list):
            self[name] = [choice for choice in held if choice in options]
        elif held not in options:
            self[name] = None
        return {"options": options, "default": self[name], **self._widget(name)}
