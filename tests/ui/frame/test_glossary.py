"""The glossary: whatever word of the field stands on a page is defined, once, with a source."""

import ast
import re
import tomllib
from functools import cache
from urllib.parse import parse_qsl, urlsplit

import pytest

from kvviz.ui.anatomy.form import SCENES
from kvviz.ui.caches.form import PARTS as CACHES
from kvviz.ui.folders import ASSETS, PAGES
from kvviz.ui.frame.glossary import FIRST, NAMES, SOURCES, TERMS, TOPICS, in_words, pattern
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.serving.form import PARTS as SERVING

ROOT = PAGES.parent
# What a page shows of other packages: what an experiment says, a design's title, what is calculated.
SHOWN = {
    "live": ["experiments/comparison"],
    "anatomy": ["experiments/inside", "experiments/architectures", "decoding/scratch"],
    "mistakes": ["decoding/scratch"],
    "roofline": ["experiments/roofline"],
    "caches": ["experiments/cache_designs", "experiments/recall", "experiments/forgetting", "caches"],
    "serving": ["experiments/serving", "experiments/batching", "experiments/load"],
    "memory": ["memory", "deployment"],
    "cost": ["cost"],
}
# Words with two capitals that a reader of any field knows, or that are names.
KNOWN = """
CPU CPUs GPU GPUs CUDA MPS CSV JSON HTML PNG SVG QR ID URL UTC TOML GB MB KB GiB MiB KiB TiB TFLOP GPT NLP PyTorch vLLM
LLaMA BERT DeepSeek NVIDIA CSS MODEL HOST PORT OK NaN TF32 AND
"""
# Words of the field, defined or not. Whichever the pages use, the glossary has to define.
FIELD = """
activation, ALiBi, allocator, attention, attention sink, bandwidth, batch, beam, beam search, block, block table,
cache hit, causal, checkpoint, compute-bound, continuous batching, cross-attention, decode step, distillation, dtype,
embedding, encoder, evicted, eviction, expert, FlashAttention, FLOP, forward pass, fragmentation, goodput, GQA,
greedy, grouped-query, head dim, hidden size, inter-token latency, ITL, kernel, key, KL divergence, knee, KV cache, KV
head, latent, launch overhead, layernorm, logit, LoRA, mask, median, memory-bound, MHA, MLA, MLP, MQA, multi-head,
multi-query, multiply-add, nucleus, p50, p99, paged, perplexity, pipeline parallel, position, preempted, prefill,
prefix, prefix sharing, quantized, quartile, query, recurrent, residual, ridge, ring, roofline, RoPE, rotary, router,
sampling, sdpa, sink, sliding window, softmax, speculative, swapped, temperature, tensor parallel, throughput, time to
first token, token, top-k, top-p, training, TTFT, value, warm-up
"""


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from strings(each)


def written(tree):
    """The texts of a Python file: its strings of several words that are no docstrings."""
    bodies = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)]
    docs = {id(node.body[0].value) for node in bodies if node.body and isinstance(node.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docs and " " in str(node.value):
            yield node.value


@cache
def texts_of(path):
    """The texts of a table, a Python file or a script."""
    if path.suffix == ".toml" and path.name != "glossary.toml":
        return [*strings(tomllib.loads(path.read_text(encoding="utf-8")))]
    if path.suffix == ".py":
        return [*written(ast.parse(path.read_text(encoding="utf-8")))]
    if path.suffix == ".js" and "vendor" not in path.parts:
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"\b([A-Z_]{2,}) = ", text):  # a constant is code, also inside a template
            text = re.sub(rf"\b{name}\b", "", text)
        return re.findall(r'(?<=")[^"\n]* [^"\n]*(?=")|(?<=`)[^`\n]* [^`\n]*(?=`)', text)
    return []


def texts_in(folder):
    return [text for path in folder.rglob("*") for text in texts_of(path)]


def terms_in(text):
    """The terms that stand in a text."""
    found = (re.sub(r"\s+", " ", match[0]).lower() for match in re.finditer(pattern(), text))
    return {NAMES.get(way) or NAMES[way.removesuffix("s")] for way in found}


@cache
def words():
    """All that the pages can say."""
    folders = ("ui", "charts", "experiments", "memory", "caches", "decoding")
    found = [text for folder in folders for text in texts_in(ROOT / "kvviz" / folder)]
    return re.sub(r"\{.*?\}", "", "\n".join(found))


@pytest.mark.parametrize("word", FIELD.replace("\n", " ").strip().split(", "))
def test_a_word_of_the_field_that_stands_on_a_page_is_defined(word):
    case = re.IGNORECASE if word.islower() else 0
    stands = re.search(rf"(?<![\w-]){re.escape(word)}(s|es)?(?![\w-])", words(), case)
    assert stands is None or terms_in(stands[0]), stands[0]


def test_an_abbreviation_that_stands_on_a_page_is_defined():
    short = set(re.findall(r"(?<![\w.-])[A-Z]{2,}s?(?![\w(.-])", words()))
    assert len(short) > 10, "the search finds them"
    assert {word for word in short - {*KNOWN.split()} if not terms_in(word)} == set()


def test_each_term_is_said_in_a_sentence_or_two_and_has_a_source():
    assert len(TERMS) > 70
    ways = [way.lower() for term in TERMS.values() for way in term.ways]
    assert len(set(ways)) == len(ways) == len(NAMES), "a way to write a term belongs to one term"
    for name, term in TERMS.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
        assert term.says.endswith(".") and 1 <= len(re.findall(r"[.:;] ", term.says + " ")) <= 3, name
        assert term.source.startswith("https://"), name
    assert SOURCES.keys() == {term.source for term in TERMS.values()}, "each source has a name, and each name a source"
    letters = [term.term[0].lower() for term in TERMS.values()]
    assert letters == sorted(letters), "in the alphabet's order"


def test_only_other_names_of_a_term_are_told():
    told = {name: in_words(term).partition("*Also: ")[2].partition(".*")[0] for name, term in TERMS.items()}
    assert (told["attention"], told["head-dim"]) == ("self-attention", "head size, head width, head_dim")
    assert (told["weights"], told["prefill"], told["query"], told["flop"]) == ("", "", "", "")
    assert {NAMES[way] for way in ("weight", "prefilled", "queries")} == {"weights", "prefill", "query"}


def test_each_term_stands_in_one_topic():
    assert sorted(name for names in TOPICS.values() for name in names) == sorted(TERMS)


def test_each_term_can_be_seen_on_a_page_whose_words_it_is_among():
    parts = {"part": {*CACHES, *SERVING}, "scene": {*SCENES}}
    for name, term in TERMS.items():
        for field, part in parse_qsl(urlsplit(term.seen).query, strict_parsing=True):
            assert part in parts[field], name
    absent = {name for name, term in TERMS.items() if name not in words_of(term.page)}
    assert absent == {"bpe", "sampling"}, "these stand there in code or in figures alone"


@cache
def words_of(page):
    """The terms among a page's own words: its texts, its folder of the pages, its scripts, and what it measures."""
    folders = [ROOT / "kvviz" / "ui" / page, ASSETS / page, *(ROOT / "kvviz" / each for each in SHOWN.get(page, ()))]
    return terms_in("\n".join([*strings(TEXTS[page]), *(text for folder in folders for text in texts_in(folder))]))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Keys and values, in each of 4 KV heads", {"key", "value", "kv-head"}),
        ("a KV\ncache of 4-bit numbers", {"kv-cache"}),
        ("memory-bound, not bound by memory", {"memory-bound"}),
        ("two queries and a cross-attention", {"query", "cross-attention"}),
        ("TTFT, and no ttft; monkeys", {"ttft"}),
        ("Batches share one reading of the weights", {"batch", "weights"}),
    ],
)
def test_terms_are_found_as_words_are_written(text, found):
    assert terms_in(text) == found


def test_the_page_has_a_heading_for_each_term_under_the_name_that_links_to_it(open_page):
    app = open_page("glossary")
    order = [*FIRST, *(name for names in TOPICS.values() for name in names if name not in FIRST)]
    found = [(heading.value, heading.anchor) for heading in app.subheader]
    assert found == [(TERMS[name].term, name) for name in order]
    links = re.findall(r"\[([^]]+)\]\(#([\w-]+)\)", "\n".join(part.value for part in app.markdown))
    topics = [(heading.value, heading.anchor) for heading in app.header][1:]
    assert [topic for topic, _ in topics] == list(TOPICS) and links[: len(topics)] == topics
    assert len(links) == len(topics), "a term stands in one place"
    assert any("[Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)" in part.value for part in app.markdown)
