"""One piece of work in the server: what was asked for, by whom, how far it is, its records. Standard library only."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kvviz.experiments.eta import Course
from kvviz.experiments.kind import Spec
from kvviz.models.catalog.rows import models
from kvviz.server.ownership import NOBODY

ACTIVE = ("queued", "loading", "running")


@dataclass
class Job:
    """One submitted comparison, sweep or look: its state and the records so far, each one JSON text.

    `made_by` is its owner's mark (kvviz.server.ownership). `cut_off`: a server died in the middle of it; viewers may
    hold records that nobody else has any more.
    """

    id: str
    spec: Spec | None  # None for a recording
    state: str = "queued"
    message: str = ""
    records: list[str] = field(default_factory=list)
    document: dict[str, Any] | None = None
    kind: str = "comparison"  # its row in kvviz.experiments.registry
    origin: str = "here"
    earlier: Sequence[dict[str, Any]] = ()  # records of a sweep that is taken up again
    made_by: str = NOBODY
    cut_off: bool = False
    begun: float | None = None  # when its worker began with it, on the clock that never steps back

    def __post_init__(self) -> None:
        done = frozenset((r["cell"], r["mode"], r["round"]) for r in self.earlier if r["t"] == "cell_pass")
        self.course = None if self.spec is None else Course(self.spec, done)

    def description(self) -> dict[str, Any]:
        """The spec as plain values; a recording's stands in its first record."""
        if self.spec is not None:
            return self.spec.to_dict()
        return json.loads(self.records[0]).get("spec", {}) if self.records else {}

    def told(self) -> dict[str, Any]:
        """What a log may hold of it: its id and numbers. A model that is no catalog id may be someone's path."""
        asked = self.description()
        fields = {"id": self.id, "kind": self.kind}
        fields |= {name: asked[name] for name in ("modes", "new_tokens", "batch", "repeats") if name in asked}
        if model := asked.get("model"):
            fields["model"] = model if model in models() else "of the user's own"
        return fields

    @property
    def active(self) -> bool:
        """Whether it waits or is being measured."""
        return self.state in ACTIVE
