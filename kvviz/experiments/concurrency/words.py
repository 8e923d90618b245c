"""What a concurrency sweep has shown, in sentences and as a table: each figure is the document's."""

from collections.abc import Mapping
from typing import Any

from kvviz.base.words import millis, two_digits
from kvviz.decoding.endpoint.engines import title_of_engine
from kvviz.experiments.comparison.endpoint_words import told_by_events
from kvviz.experiments.comparison.figures import tail

Row = Mapping[str, Any]  # a document of docs/json.md, or one of its rows
MOSTLY = 0.5  # a share of the prompts that is more than this is most of their work
FASTER = 1.3  # times the tokens a second that no noise makes
BUSY = 0.7  # of a core: above it this process may be what is slow
RISES = 1.1  # times the tokens a second: less is level, as far as one run tells
BATCHING = {  # how a server batches unless its options say otherwise
    "llamacpp": "llama.cpp batches continuously by default: all slots that decode share each step.",
    "vllm": "vLLM batches continuously by default: all requests that decode share each step.",
    "sglang": "SGLang batches continuously by default: all requests that decode share each step.",
}


def claim(document: Row) -> str:
    """Say from which number of requests at once on more of them bring no more tokens a second, else how many more."""
    first, last = document["rows"][0], document["rows"][-1]
    if first is last or not first["tokens_per_s"]:
        return f"{last['tokens_per_s']:.3g} tokens/s with {last['concurrency']} at once"
    enough = _enough(document)
    if enough != last["concurrency"]:
        requests = "1 request" if enough == 1 else f"{enough} requests at once"
        soon, late = (row.get("ttft_s_p50") or 0.0 for row in (_row_of(document, enough), last))
        waits = ", but a later first token" if late > RISES * soon > 0 else ""
        return f"From {requests} on, hardly more tokens a second{waits}"
    tokens, more = last["tokens_per_s"] / first["tokens_per_s"], last["concurrency"] / first["concurrency"]
    return f"{more:.3g} times the requests at once, {two_digits(tokens)} times the tokens a second"


def claim_of_recording(document: Row) -> str:
    """Say the claim after what it was measured on: the server, the model, the cores that a recording's title ends with.

    It is a counter-example if no more requests at once get clearly more tokens a second than one.
    """
    cores, said = document["title"].rsplit(", ", 1)[-1].replace("core", "CPU core"), claim(document)
    engine, alone = document["engine"], document["rows"][0]["tokens_per_s"]
    counter = ", a counter-example" if document["rows"][1:] and 0 < _most(document) <= FASTER * (alone or 0.0) else ""
    where = f"{title_of_engine(engine['name'])} with {engine['model']} {cores}{counter}"
    return f"{where}: {said[0].lower()}{said[1:]}"


def ceiling(document: Row) -> str:
    """Say how much of the most tokens a second one request gets alone, and how much the fewest get that reach it."""
    levels = [(row["concurrency"], row["tokens_per_s"] or 0.0) for row in document["rows"]]
    (one, alone), (last, at_last) = levels[0], levels[-1]
    most, enough = _most(document), _enough(document)
    if not levels[1:] or not most:
        return "One point is no curve: try more requests at once."
    if enough == last:
        still = f"Tokens a second still rise at {last} at once, the most tried."
        return f"{still} A server that runs no more than that at once lets the others wait."
    fewer = f" With {last} at once there are fewer." if RISES * at_last < most else ""
    share = f"{'One request alone gets' if one == 1 else f'{one} at once get'} {alone / most:.0%}"
    if enough == one:
        return f"{share} of the most tokens a second that were measured.{fewer}"
    reached = _row_of(document, enough)["tokens_per_s"] / most
    return f"{share} of the most tokens a second that were measured, {enough} at once {reached:.0%}.{fewer}"


def of_sharing(document: Row) -> str:
    """Say that answering together saves little, if the pause between two pieces grows nearly as the requests do."""
    first, last = document["rows"][0], document["rows"][-1]
    if first is last or not first["itl_s_p50"] or not last["itl_s_p50"]:
        return ""
    times = last["itl_s_p50"] / first["itl_s_p50"]
    if last["concurrency"] / first["concurrency"] > FASTER * times:
        return ""
    return (
        f"With {last['concurrency']} at once, the median pause between two pieces of the streamed answer is "
        f"{two_digits(times)} times as long as with {first['concurrency']}: answering them together saves hardly any "
        "time; this run does not show why."
    )


def claim_of_tokens(document: Row) -> str:
    """Say how many times the tokens a second of the fewest requests at once the best level has."""
    first = document["rows"][0]
    if len(document["rows"]) == 1 or not first["tokens_per_s"]:
        return "Tokens a second, of all requests together"
    times = two_digits(_most(document) / first["tokens_per_s"])
    one = "one alone" if first["concurrency"] == 1 else f"{first['concurrency']} at once"
    return f"All together: at most {times} times as many tokens a second as {one}"


def _most(document: Row) -> float:
    return max(row["tokens_per_s"] or 0.0 for row in document["rows"])


def _enough(document: Row) -> int:
    """The fewest requests at once that get nearly the most tokens a second."""
    most = _most(document)
    return next(row["concurrency"] for row in document["rows"] if RISES * (row["tokens_per_s"] or 0.0) >= most)


def _row_of(document: Row, concurrency: int) -> Row:
    return next(row for row in document["rows"] if row["concurrency"] == concurrency)


def how_often(document: Row) -> str:
    """Say of how many requests each point is, and that none was repeated."""
    counts = sorted({row["requests"] for row in document["rows"]})
    many = f"{counts[0]:,}" if counts[0] == counts[-1] else f"{counts[0]:,} to {counts[-1]:,}"
    return f"Each point is {many} requests of one run; how far runs differ was not measured."


def asked(document: Row) -> str:
    """Say how long a prompt and an answer are, and what one request alone waits for, as far as metrics tell."""
    tokens, new = _prompt_tokens(document), document["new_tokens"]
    if tokens is None:
        return f"Each answer has at most {new:,} tokens; how long the prompts are, the server's metrics do not tell."
    return (
        f"Each request is a prompt of about {two_digits(tokens)} tokens and an answer of at most {new:,}. One "
        "request alone waits for its first token while the server prefills nearly all of its prompt, and for the "
        "network. Tokens a second count only answers."
    )


def _prompt_tokens(document: Row) -> float | None:
    """The mean tokens of a prompt: what the metrics counted after the first level, over the requests since then."""
    alike, rows = document.get("alike"), document["rows"]
    later = [*rows[1:], *([alike] if alike else [])]
    told = [look for look in document["looks"] if look["prefix_queries"] is not None]
    first = [look for look in told if look["part"] == 0]
    requests = sum(row["requests"] for row in later)
    if not first or not requests or told[-1]["part"] != len(later) or any(row["failed"] for row in [*rows, *later]):
        return None
    counted = told[-1]["prefix_queries"] - first[-1]["prefix_queries"]
    return counted / requests if counted > 0 else None


def cause(document: Row) -> str:
    """Say whether computing the prompts took the time; the last part tells, which computes little of them. Else ""."""
    alike, last, rates = document.get("alike"), document["rows"][-1], hit_rates(document)
    if not alike or not last["tokens_per_s"] or (rates[-1] or 0.0) < MOSTLY:
        return ""
    more = alike["tokens_per_s"] / last["tokens_per_s"]
    asked = f"Asked again with prompts of which {rates[-1]:.0%} came from its prefix cache, the server wrote"
    if more < FASTER:
        return f"{asked} hardly more tokens a second: computing the prompts is not what took most of the time."
    times = f"{two_digits(more)} times the tokens a second with as many requests at once"
    return f"{asked} {times}: so much of the time had gone into computing prompts."


def hit_rates(document: Row) -> list[float | None]:
    """The share of the prompts' tokens that each part found in the prefix cache, the last part included; None: untold.

    It is the answers' own count, or what the metrics counted from one part's last look to the next one's.
    """
    alike = document.get("alike")
    parts = [*document["rows"], *([alike] if alike else [])]
    told = [look for look in document["looks"] if None not in (look["prefix_queries"], look["prefix_hits"])]
    found, before = list[float | None](), told[0] if told else None
    for number, row in enumerate(parts):
        here = [look for look in told if look["part"] == number]
        asked = here[-1]["prefix_queries"] - before["prefix_queries"] if here and before else 0.0
        rate = (here[-1]["prefix_hits"] - before["prefix_hits"]) / asked if here and before and asked > 0 else None
        found.append(rate if row["hit_rate"] is None else row["hit_rate"])
        before = here[-1] if here else before
    return found


def waits_of(row: Row, name: str) -> int:
    """Count the waits behind a level's percentiles: a "ttft_s" for each request, an "itl_s" between two pieces."""
    return row["requests"] if name == "ttft_s" else max(0, row["pieces"] - row["requests"])


def claim_of_wait(document: Row, field: str, what: str) -> str:
    """Say how many times as long the wait `field`, such as "ttft_s_p50", is with the most requests at once."""
    first, last = document["rows"][0], document["rows"][-1]
    if first is last or not first[field] or not last[field]:
        return what
    rank = field.rpartition("_")[2].replace("p50", "median")
    return f"{what}: {two_digits(last[field] / first[field])} times as long ({rank}) with {last['concurrency']} at once"


def claim_of_hits(document: Row) -> str:
    """Say what a common beginning of the prompts did: tokens found in the prefix cache, and the wait; "" if untold."""
    alike, last, rates = document.get("alike"), document["rows"][-1], hit_rates(document)
    if not alike or rates[-1] is None:
        return ""
    said = f"Of prompts that begin alike {rates[-1]:.0%} of the tokens came from the prefix cache"
    soon, late = alike["ttft_s_p50"], last["ttft_s_p50"]
    return f"{said}, and the first token came after {millis(soon)}, not {millis(late)} (p50)" if soon and late else said


def sentences(document: Row) -> list[str]:
    """Say what more requests at once have done to the waits and to the tokens of all."""
    rows, engine = document["rows"], document["engine"]
    first, last = rows[0], rows[-1]
    version = f" {engine['version']}" if engine["version"] else ""
    asked = f"The server is {title_of_engine(engine['name'])}{version}, which serves {engine['model']}"
    said = [f"{asked}; times are measured when the text arrives here."]
    if last is not first and first["tokens_per_s"]:
        more, tokens = last["concurrency"] / first["concurrency"], last["tokens_per_s"] / first["tokens_per_s"]
        said.append(
            f"With {more:.3g} times the requests at once it writes {two_digits(tokens)} times the tokens a second."
        )
        for field, title in (("ttft_s_p99", "First token"), ("itl_s_p99", "Time between two pieces")):
            if first[field] and last[field]:
                called = tail(*(waits_of(row, field.removesuffix("_p99")) for row in (first, last)))
                long = f"{last[field] / first[field]:.3g} times as long, {millis(last[field])}"
                said.append(f"{title}, {called}: {long}.")
    if alike := claim_of_hits(document):
        said.append(f"{alike}.")
    if found := cause(document):
        said.append(found)
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
