"""`kvviz sweep` as scripts see it: one JSON document, a table to read, a journal that survives a kill."""

import json
import signal
import subprocess
import sys
import time

import pytest

from kvviz.base.paths import CHECKOUT

TINY = ("--model", "tiny-gpt2", "--prompt-tokens", "4,8", "--new-tokens", "3", "--repeats", "1")
DASHBOARD = ("streamlit", "plotly", "sqlalchemy", "starlette", "pyarrow", "platformdirs", "pandas")


@pytest.mark.slow
@pytest.mark.worker
def test_it_prints_one_document_without_the_dashboards_packages():
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({DASHBOARD!r}));"
        f"sys.argv = ['kvviz', 'sweep', *{TINY!r}, '--json']; from kvviz.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {"environment", "rows"} <= set(document)
    assert [(row["prompt_tokens"], row["mode"]) for row in document["rows"]] == [
        (4, "uncached"),
        (4, "cached"),
        (8, "uncached"),
        (8, "cached"),
    ]
    assert {
        "model", "mode", "prompt_tokens", "new_tokens", "batch", "dtype", "ttft_s", "itl_s", "itl_s_q1", "itl_s_q3",
        "itl_mean_s", "tokens_per_s", "total_s", "peak_bytes", "peak_kind", "cache_bytes", "speedup",
    } <= set(document["rows"][0])  # fmt: skip
    assert "passes" in done.stderr and "USDT" not in done.stderr


@pytest.mark.slow
def test_a_preset_is_a_table_with_the_published_one_beside_it(kvviz):
    done = kvviz("sweep", "--preset", "lab-01", "--model", "tiny-gpt2", "--new-tokens", "2", "--repeats", "1")
    assert done.status == 0, done.err
    assert "tiny-gpt2 in float32" in done.out and "46.9×" in done.out
    assert "cached, prompt 64 → 512: time per token" in done.out


@pytest.mark.slow
def test_a_config_on_standard_input(kvviz):
    config = '{"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 256}'
    arguments = ("--model", "-", "--prompt-tokens", "4", "--new-tokens", "2", "--repeats", "1", "--json")
    assert len(kvviz("sweep", *arguments, stdin=config).document["rows"]) == 2


@pytest.mark.slow
@pytest.mark.worker
def test_a_killed_sweep_goes_on_from_its_journal(tmp_path):
    """Both in processes of their own: with other threads, the second would refuse to add to the first."""
    journal = tmp_path / "sweep.jsonl"
    arguments = ("--model", "tiny-gpt2", "--prompt-tokens", "4,8", "--new-tokens", "3", "--repeats", "40")
    command = [sys.executable, "-m", "kvviz", "sweep", *arguments, "--resume", str(journal)]
    running = subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: journal.exists() and len(passes(journal)) > 5)
    running.send_signal(signal.SIGKILL)
    running.wait()
    kept = passes(journal)
    assert len(kept) < 160
    again = [*command[:4], "--resume", str(journal), "--repeats", "4", "--json"]
    done = subprocess.run(again, cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(row["repeats"] >= 4 and row["repeatable"] for row in json.loads(done.stdout)["rows"])
    after = passes(journal)
    assert after[: len(kept)] == kept and len(set(after)) == len(after), "nothing is measured twice"


def passes(journal):
    """(cell, mode, round) of each pass in a journal; the last line may be torn."""
    found = []
    for line in journal.read_text().splitlines():
        if '"cell_pass"' in line and line.endswith("}"):
            record = json.loads(line)
            found.append((record["cell"], record["mode"], record["round"]))
    return found


def until(is_so, seconds=120):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--model"),
        (["--preset", "lab-99"], "lab-01"),
        (["--model", "no-such-model"], "catalog id"),
        (["--model", "tiny-gpt2,"], "needs a model"),
        (["--model", "tiny-gpt2", "--mode", "fast"], "uncached, cached, unpassed"),
        (["--model", "tiny-mistral,tiny-gemma3", "--mode", "cached,scratch"], "sliding window of 16 tokens"),
        (["--model", "tiny-gpt2", "--prompt-tokens", "64,x"], "whole numbers"),
        (["--model", "tiny-gpt2", "--prompt-tokens", "64,64"], "twice"),
        (["--model", "tiny-gpt2", "--new-tokens", "0"], "from 1 to"),
        (["--model", "tiny-gpt2", "--batch", "65"], "1 to 64"),
        (["--model", "tiny-gpt2", "--dtype", "int3"], "float32, bfloat16, float16"),
        (["--model", "tiny-gpt2", "--repeats", "many"], "--repeats"),
        (["--model", "tiny-gpt2", "--budget", "0"], "budget"),
        (["--model", "tiny-gpt2", "--device", "cuda:99"], "not on this machine"),
        (["--model", "tiny-gpt2", "--prompt-tokens", "1023"], "1,024 positions"),
        (["--model", "tiny-gpt2", "--resume", "README.md"], "not the journal"),
        (["--model", "tiny-gpt2", "--resume", "/nowhere/journal"], "can't be written"),
        (["--model", "tiny-gpt2", "--prompt-tokens", ",".join(map(str, range(1, 300)))], "at most 200"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(refused, arguments, says):
    refused(says, "sweep", *arguments)
