"""A job: one experiment in the queue, who asked for it, its state and its records. Standard library only."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvviz.experiments.eta import Countdown
from kvviz.experiments.kind import Record, Spec
from kvviz.models.catalog.rows import models
from kvviz.server.ownership import NOBODY

ACTIVE = ("queued", "loading", "running")


@dataclass
class Job:
    """An experiment with its state and the records so far, each one JSON text.

    `made_by` is its owner's mark (kvviz.server.ownership). `cut_off`: a server died in the middle of it, so viewers may
    hold records that were never stored.
    """

    id: str
    spec: Spec | None  # None for an imported recording and for a job of an earlier day
    state: str = "queued"
    message: str = ""
    records: list[str] = field(default_factory=list)
    document: Record | None = None
    kind: str = "comparison"  # its row in kvviz.experiments.registry
    origin: str = "here"
    earlier: Sequence[Record] = ()  # records of the interrupted sweep that this job continues
    made_by: str = NOBODY
    cut_off: bool = False
    begun: float | None = None  # when the worker began with it, on the monotonic clock

    def __post_init__(self) -> None:
        self.countdown = None if self.spec is None else Countdown(self.spec, self.earlier)

    def description(self) -> Record:
        """The spec as plain values; without a spec, what the first record says of it."""
        if self.spec is not None:
            return self.spec.to_dict()
        return json.loads(self.records[0]).get("spec", {}) if self.records else {}

    def log_fields(self) -> dict[str, object]:
        """What a log may hold of it: its id and numbers. A model outside the catalog may be someone's path."""
        asked = self.description()
        fields: dict[str, object] = {"id": self.id, "kind": self.kind}
        fields |= {name: asked[name] for name in ("modes", "new_tokens", "batch", "repeats") if name in asked}
        if model := asked.get("model"):
            fields["model"] = model if model in models() else "of the user's own"
        return fields

    @property
    def active(self) -> bool:
        """Whether it waits or is being measured."""
        return self.state in ACTIVE
