"""`memory()`: the calculator's bytes as a table without a script, and one sentence for what it can't do."""

import json
import subprocess
import sys
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

import kvviz
from kvviz.base.errors import KvvizError
from tests.models.gguf.writer import header, model

EVIL = "<img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    """The tags of a text, each closed in its turn, and what stands in them."""

    def __init__(self, html):
        super().__init__()
        self.seen, self.open, self.text = [], [], ""
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_models_side_by_side():
    found = kvviz.memory("llama-3.1-8b", "deepseek-v3 gemma-3-12b", tokens=8192)
    assert found.total_bytes == 2**30
    assert [row["total_bytes"] for row in found.documents] == [2**30, 8192 * 70_272, 872_415_232]
    assert "LLaMA 3.1-8B 1.0 GiB, DeepSeek-V3 549.0 MiB" in repr(found)
    page = Tags(found._repr_html_())
    for said in (
        "1,073,741,824 B",
        "What would save most: GQA-8 to MQA leaves 1/8 of the bytes",
        "GQA-8 to MLA: 1/3.6",
        "40 sliding, 8 full",
    ):
        assert said in page.text
    assert {tag for tag, _ in page.seen} <= {"div", "b", "table", "thead", "tbody", "tr", "th", "td", "span"}
    colours = {part for _, attrs in page.seen for part in attrs.get("style", "").split(";") if part.startswith("color")}
    assert colours == {"color:inherit"}, "the letters have the colour of the page around them, light or dark"


def test_a_gguf_file_is_counted_as_llama_cpp_keeps_it(tmp_path):
    path = tmp_path / "small.gguf"
    path.write_bytes(
        header(model("gemma3", {"block_count": 6, "attention.sliding_window": 512}), [("w", (256, 9), 12, 0)])
    )
    found = kvviz.memory(path, tokens=5000)
    assert (found.asked.view, found.asked.dtype) == ("llama.cpp", "float16")
    assert kvviz.memory(path, tokens=5000, swa_full=True).total_bytes >= found.total_bytes
    assert "1.3&nbsp;KiB" in found._repr_html_()


def test_a_config_in_any_form_and_a_hostile_name():
    """Transformers' configs have `to_dict`, and its models a `config`."""
    fields = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2}
    fields |= {"_name_or_path": EVIL}
    config = SimpleNamespace(to_dict=lambda: fields)
    forms = (fields, json.dumps(fields), config, SimpleNamespace(config=config))
    each = [kvviz.memory(given, tokens=10) for given in forms]
    assert {found.total_bytes for found in each} == {10 * 2 * 2 * 64 * 2}
    assert "img" not in {tag for tag, _ in Tags(each[0]._repr_html_()).seen}


@pytest.mark.parametrize(
    ("given", "case", "says"),
    [
        ((), {}, "one to 6 models, not 0"),
        (("no-such-model",), {}, "no model 'no-such-model'"),
        ((3,), {}, "not int"),
        (("GPU KV cache size: 42,656 tokens",), {}, "lines of a log"),
        (({"model_type": "bert"},), {}, "keeps no KV cache"),
        (("gpt2",), {"tokens": 0}, "tokens is 0"),
        (("gpt2",), {"view": "ollama"}, "view is 'ollama'"),
    ],
)
def test_what_it_can_not_do_is_one_sentence(given, case, says):
    with pytest.raises(KvvizError, match=says):
        kvviz.memory(*given, **case)


@pytest.mark.slow
def test_the_name_can_be_called_before_and_after_its_package_is_imported_and_needs_no_torch():
    code = (
        "import sys, kvviz\n"
        "one = kvviz.memory('gpt2').total_bytes\n"
        "import kvviz.memory.formula\n"
        "from kvviz import memory\n"
        "print(one == memory('gpt2').total_bytes, sorted({'torch', 'streamlit', 'plotly'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "True []"
