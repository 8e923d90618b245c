"""Write the recordings under kvviz/ui/assets that pages show before anything has run there.

Each is the run that a page's form asks for at first, measured here. Run `python -m tools.recording` on a machine that
does nothing else, after a change of a form's defaults, of the bundled models or of what is recorded; `python -m
tools.recording caches roofline` makes these alone anew.
"""

import datetime
import gzip
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench import own_servers
from kvviz.cli.measure_here import bench_here, document_here
from kvviz.decoding.meta_probe_process import probe_apart
from kvviz.device.cores import processor_name, share_of_cores
from kvviz.experiments.architectures.spec import SCENES, ArchitectureSpec
from kvviz.experiments.cache_designs.spec import CachesSpec
from kvviz.experiments.comparison.figures import finished
from kvviz.experiments.comparison.run import perform
from kvviz.experiments.comparison.spec import opening, rehearsal
from kvviz.experiments.concurrency.spec import ConcurrencySpec
from kvviz.experiments.concurrency.words import sentences
from kvviz.experiments.forgetting.spec import ForgettingSpec
from kvviz.experiments.inside.spec import AnatomySpec, MistakeSpec
from kvviz.experiments.kind import Bench, Record, Spec
from kvviz.experiments.recall.spec import RecallSpec
from kvviz.experiments.roofline.spec import RoofSpec
from kvviz.experiments.serving.spec import (
    ASKS,
    EDITED,
    FIRST,
    SECOND,
    SYSTEM,
    ArrivalsSpec,
    PrefixesSpec,
    SharingSpec,
    TalkSpec,
)
from kvviz.experiments.sweep.plan import preset_spec
from kvviz.experiments.sweep.spec import PRESETS
from kvviz.memory.calculator import Asked
from kvviz.models.catalog.rows import models
from kvviz.models.sources import first_model
from kvviz.models.text import STORY
from kvviz.ui.anatomy.architectures import recorded_as
from kvviz.ui.anatomy.form import NEW
from kvviz.ui.caches.form import PROMPT
from kvviz.ui.folders import ASSETS
from kvviz.ui.mistakes.form import NEW_TOKENS
from kvviz.ui.roofline.form import first_roof, kept
from kvviz.ui.serving import preemption
from kvviz.ui.serving.batching import batching_spec
from kvviz.ui.serving.load import load_spec

LIVE, PROBE = "live", "probe"
REQUESTS_AT_ONCE, LONGEST = 8, 512  # of the real server: the form's requests, and tokens of each
EACH = 60  # requests of each asker: the page asks fewer, for a server that is slow


def first_specs() -> dict[str, Spec]:
    """What the forms of the pages beside the live one ask for at first, by the names of the recordings."""
    model = first_model()
    specs: tuple[Spec, ...] = (
        CachesSpec(model, prompt=PROMPT),
        RecallSpec(),
        ForgettingSpec(model),
        first_roof(),
        ArrivalsSpec(),
        batching_spec(model),
        load_spec(model),
        PrefixesSpec(model),
        SharingSpec(model, SYSTEM, ASKS[:4]),
        TalkSpec(model, FIRST, SECOND, EDITED),
        preset_spec(next(iter(PRESETS))),
    )
    return {
        **{spec.kind: spec for spec in specs},
        preemption.RECORDING: preemption.preemption_spec(model),
        kept(model): RoofSpec(model),
    }


TOO_LARGE = ("latent",)  # scenes that come without a recording, so that the wheel stays below 8 MB


def first_looks() -> dict[str, Spec]:
    """The inspections that pages take when they are opened, by the names of the recordings."""
    model = first_model()
    return {
        AnatomySpec.kind: AnatomySpec(model, STORY, new_tokens=NEW),
        MistakeSpec.kind: MistakeSpec(model, STORY, new_tokens=NEW_TOKENS),
        **{recorded_as(scene): ArchitectureSpec(scene) for scene in SCENES if scene not in TOO_LARGE},
    }


def main(chosen: list[str]) -> None:
    """Measure, and write what a page shows or replays: those chosen by name, or all."""
    _, serving = share_of_cores()  # before this process takes the others
    with bench_here("the recordings") as bench:
        first = rehearsal()
        list(perform(first, bench.models.get(first), comparison_id="rehearsal", watched=True))
        if LIVE in chosen or not chosen:
            work = opening(first_model())
            every = perform(work, bench.models.get(work), comparison_id="recording", watched=True)
            _, records = finished(list(every))
            _write(ASSETS / "live" / "recording.json.gz", {"records": [{**record} for record in records]})
        for name, spec in first_specs().items():
            if name in chosen or not chosen:
                _write(ASSETS / "recordings" / f"{name}.json.gz", {"document": document_here(spec, bench)})
        for name, spec in first_looks().items():
            if name in chosen or not chosen:
                records: list[Record] = []
                document_here(spec, bench, records.append)
                _write(ASSETS / "recordings" / f"{name}.json.gz", {"records": records[:2]})
        if PROBE in chosen or not chosen:
            case = Asked()
            key = case.models[0]
            probed = probe_apart(models()[key].config, tokens=case.tokens, batch=case.batch, dtype=case.dtype)
            found = {**probed, "model": key, "transformers": version("transformers")}
            _write(ASSETS / "recordings" / f"{PROBE}.json.gz", {"document": found})
        if ConcurrencySpec.kind in chosen or not chosen:
            found = _of_a_real_server(bench, serving)
            _write(ASSETS / "recordings" / f"{ConcurrencySpec.kind}.json.gz", {"document": found})


def _of_a_real_server(bench: Bench, cores: list[int]) -> Record:
    """Ask llama.cpp's own server on loopback, on cores of its own, what the page's form asks at first."""
    with own_servers.llama_cpp(slots=REQUESTS_AT_ONCE, tokens=REQUESTS_AT_ONCE * LONGEST, cores=cores) as url:
        levels = tuple(2**power for power in range(REQUESTS_AT_ONCE.bit_length()))
        document = document_here(ConcurrencySpec(url, concurrency=levels, requests=EACH), bench)
    engine = {**document["engine"], "version": own_servers.llama_cpp_version(), "model": own_servers.MODEL}
    named = {**document, "endpoint": None, "engine": engine}
    on = f"{len(cores)} cores" if cores[1:] else "one core"
    title = (
        f"llama.cpp's own server ({engine['version']}), which serves {own_servers.MODEL} in float32, up to "
        f"{REQUESTS_AT_ONCE} requests at once, on {on}"
    )
    environment = {"device_name": processor_name()}
    return {**named, "sentences": sentences(named), "title": title, "environment": environment}


def _write(file: Path, found: dict[str, Any]) -> None:
    """Write a recording, each number with six digits: no page shows the clock's further ones, which are most of a file.

    Those that are kept were packed again with zopfli and no limit of blocks, which makes them a tenth smaller.
    """
    made = datetime.datetime.now(datetime.UTC).date().isoformat()
    short = json.loads(json.dumps(found), parse_float=lambda digits: float(f"{float(digits):.6g}"))
    if "spec" in found.get("document", {}):  # what a form asks for has to be found again
        short["document"]["spec"] = found["document"]["spec"]
    text = json.dumps({"made": made, **short}, separators=(",", ":"))
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{file}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
