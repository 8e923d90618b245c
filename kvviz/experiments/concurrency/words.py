"""What a concurrency sweep has shown, in sentences and as a table: each figure is the document's."""

from collections.abc import Mapping
from typing import Any

from kvviz.base.words import millis, two_digits
from kvviz.decoding.endpoint.engines import title_of_engine
from kvviz.experiments.comparison.endpoint_words import told_by_events

Row = Mapping[str, Any]  # a document of docs/json.md, or one of its rows
BUSY = 0.7  # of a core: above it this process may be what is slow


def claim(document: Row) -> str:
    """Say what more requests at once did to the tokens of all and to the wait of each."""
    first, last = document["rows"][0], document["rows"][-1]
    if first is last or not first["tokens_per_s"]:
        return f"{last['tokens_per_s']:.3g} tokens/s with {last['concurrency']} at once"
    tokens, more = last["tokens_per_s"] / first["tokens_per_s"], last["concurrency"] / first["concurrency"]
    said = f"{more:.3g} times the requests at once, {two_digits(tokens)} times the tokens a second"
    if first["ttft_s_p99"] and last["ttft_s_p99"]:
        said += f", and a first token after {millis(last['ttft_s_p99'])}, not {millis(first['ttft_s_p99'])} (p99)"
    return said


def claim_of_wait(document: Row, field: str, what: str) -> str:
    """Say how much longer the slowest hundredth waits with the most requests at once."""
    first, last = document["rows"][0], document["rows"][-1]
    if first is last or not first[field] or not last[field]:
        return what
    return f"{what}: {two_digits(last[field] / first[field])} times as long (p99) with {last['concurrency']} at once"


def claim_of_hits(document: Row) -> str:
    """Say what a common beginning of the prompts did: tokens found in the prefix cache, and the wait; "" if untold."""
    alike, last = document.get("alike"), document["rows"][-1]
    if not alike or alike["hit_rate"] is None:
        return ""
    rate = f"{alike['hit_rate']:.0%}"
    said = f"In the last part, where prompts begin alike, {rate} of their tokens came from the prefix cache"
    soon, late = alike["ttft_s_p50"], last["ttft_s_p50"]
    return f"{said}, and the first token came after {millis(soon)}, not {millis(late)} (p50)" if soon and late else said


def sentences(document: Row) -> list[str]:
    """Say what more requests at once have done to the waits and to the tokens of all."""
    rows, engine = document["rows"], document["engine"]
    first, last = rows[0], rows[-1]
    version = f" {engine['version']}" if engine["version"] else ""
    said = [f"Asked was {title_of_engine(engine['name'])}{version}, model {engine['model']}; times are of arrival."]
    if last is not first and first["tokens_per_s"]:
        more, tokens = last["concurrency"] / first["concurrency"], last["tokens_per_s"] / first["tokens_per_s"]
        said.append(
            f"With {more:.3g} times the requests at once it writes {two_digits(tokens)} times the tokens a second."
        )
        for field, title in (("ttft_s_p99", "first token"), ("itl_s_p99", "time between two pieces")):
            if first[field] and last[field]:
                long = f"{last[field] / first[field]:.3g} times as long: {millis(last[field])}"
                said.append(f"The {title} of the slowest hundredth takes {long}.")
    if alike := claim_of_hits(document):
        said.append(f"{alike}.")
    if any(row["tokens"] is None for row in rows):
        said.append("The server did not count its tokens: those are pieces of text, which may hold several.")
    elif any(row["pieces"] != row["tokens"] for row in rows):
        said.append("Pieces and tokens are not equally many, so the times between pieces are not those of a token.")
    for row in rows:
        if row["failed"]:
            said.append(f"Of {row['concurrency']} at once {row['failed']} requests failed: {row['why_failed']}.")
        if row["client_busy"] > BUSY:
            said.append(
                f"With {row['concurrency']} at once this client was busy for {row['client_busy']:.0%} of the time on a "
                "core: its own speed is in the figures."
            )
    if document.get("kv_events"):
        said += told_by_events(document["kv_events"])
    return said


def text(document: Row) -> str:
    """Format the levels for a terminal."""
    names = ("ttft_s_p50", "ttft_s_p99", "itl_s_p50", "itl_s_p99")
    heads = " ".join(f"{head:>10}" for head in ("TTFT p50", "p99", "ITL p50", "p99", "in cache"))
    lines = [f"{'at once':>8} {'tokens/s':>9} {heads}"]
    for row in document["rows"]:
        times = " ".join(f"{'-' if row[name] is None else millis(row[name]):>10}" for name in names)
        used = "-" if row["cache_usage"] is None else f"{row['cache_usage']:.1%}"
        lines.append(f"{row['concurrency']:>8} {row['tokens_per_s']:>9.4g} {times} {used:>10}")
    return "\n".join([*lines, "", *document["sentences"]])
