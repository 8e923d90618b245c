"""`kvviz models`."""

import pytest

from kvviz.cli.models import _row_text


@pytest.mark.slow
def test_it_lists_what_the_catalog_has(kvviz):
    rows = {row["id"]: row for row in kvviz("models", "--json").document["models"]}
    assert {"gpt2", "llama-3.1-8b", "qwen3-4b", "tiny-gpt2", "tiny-gemma3"} <= set(rows)
    assert set(rows["gpt2"]) >= {"id", "family", "title", "layers", "params", "weights", "source"}
    assert (rows["gpt2"]["layers"], rows["gpt2"]["params"]) == (12, 124_439_808)


def test_as_text_each_has_a_line(kvviz):
    lines = kvviz("models").out.splitlines()
    assert any(line.startswith("gpt2 ") and "12 layers      124,439,808 parameters" in line for line in lines)


def test_a_long_id_and_a_long_title_keep_apart():
    row = {"id": "a-folder/of-an-uncommonly-long-name", "title": "A title of uncommon length, longer than its column"}
    assert _row_text({**row, "layers": 2, "params": 5, "weights": "local"}).startswith(f"{row['id']} {row['title']} ")
