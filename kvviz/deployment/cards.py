"""Find a card by the name that somebody gives it, or make one of a number of bytes."""

import re
from difflib import get_close_matches

from kvviz.base.errors import ConfigError
from kvviz.models.catalog.rows import Accelerator, accelerators

_SIZE = re.compile(r"(\d{1,5}(?:\.\d{1,3})?)\s*(GiB|GB|G)", re.IGNORECASE)


def card_named(name: str) -> Accelerator:
    """The card with that id, title or memory ("24GB", "45.5 GiB"). Raises ConfigError naming those that are alike.

    Of several that match, such as the two forms of the H100, none is taken.
    """
    rows = accelerators()
    if size := _SIZE.fullmatch(name.strip()):
        factor = 10**9 if size[2].upper() == "GB" else 2**30
        nbytes = int(float(size[1]) * factor)
        if not nbytes:
            raise ConfigError(f"a card of {name} has no memory")
        note = "As given; what a driver leaves of it may be less."
        return Accelerator(name, f"a card of {name.strip()}", "", nbytes, note, None, "", {}, None, "")
    wanted = _plain(name)
    if exact := [row for row in rows.values() if wanted in (_plain(row.id), _plain(row.title))]:
        return exact[0]
    found = [row for row in rows.values() if wanted and wanted in _plain(f"{row.vendor} {row.title} {row.id}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"{name!r} may be {' or '.join(row.id for row in found)}; give one of these")
    near = get_close_matches(name.lower().replace(" ", "-"), rows, n=4, cutoff=0.0)
    raise ConfigError(f"no card {name!r} is known; near ones are {', '.join(near)}, or give its memory, such as 24GB")


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
