"""Each link of README and documentation leads somewhere, each command exists as it is written, each example runs."""

import ast
import importlib.util
import os
import re
import shlex
import subprocess
import sys

import pytest
import typer
import yaml

from kvviz.cli.main import app
from kvviz.ui.frame.page import TEXTS
from tests.cli.conftest import kvviz  # noqa: F401, a fixture
from tests.docs.pages import DOCS, ROOT, blocks, command_lines, pages
from tools.documentation import AT_ROOT, OPTIONAL, anchor

# Programs of others, and commands that need a network or a server: of these the options are read, and nothing runs.
OTHERS = {
    "docker",
    "hf",
    "nsys",
    "ncu",
    "pip",
    "pipx",
    "uvx",
    "srun",
    "jupyter",
    "curl",
    "export",
    "git",
    "nvidia-smi",
    "ray",
}
ELSEWHERE = {
    "pull": "needs a network",
    "endpoint": "needs a server",
    "cluster": "needs a cluster",
    "serve": "tests/cli/test_serve.py",
    "ready": "tests/cli/test_ready.py",
    "selftest": "tests/cli/test_selftest.py",
    "import": "needs a file",
    "export": "needs a kept run",
}
AT_ONCE = {"models", "calc", "cost", "plan"}  # the others measure: `make test-long` runs them
# A measuring command runs on a model so small that it takes seconds, and no longer than these.
SMALLER = {"gpt2": "tiny-gpt2", "mini-gpt2": "tiny-gpt2", "mini-qwen3": "tiny-qwen3", "deepseek-v3": "tiny-llama"}
SHORTER = {"--prompt-tokens": "16", "--new-tokens": "4", "--budget": "2", "--precision": None}


def words(line):
    """The words of a command, without variables before it and redirections behind it."""
    found = shlex.split(re.sub(r"\s[<>|&]+\s.*", "", line))
    while found and re.fullmatch(r"[A-Z_]+=.*", found[0]):
        found.pop(0)
    if found[:3] == [".venv/bin/python", "-m", "kvviz"]:
        found[:3] = ["kvviz"]
    return found


LINES = [(block, line, words(line)) for block, line in command_lines()]
OURS = {" ".join(found): found[1:] for _, _, found in LINES if found[:1] == ["kvviz"] and len(found) > 1}


def test_there_are_commands_and_examples_to_be_tested():
    assert len(OURS) > 20 and sum(block.language == "python" for block in blocks()) >= 5


COMMANDS = typer.main.get_command(app).commands


def parse(arguments):
    """Read a command's arguments as typer does, without running it."""
    return COMMANDS[arguments[0]].make_context(arguments[0], list(arguments[1:]))


def test_typer_takes_each_command_as_it_is_written():
    for text, arguments in OURS.items():
        try:
            parse(arguments)
        except Exception as error:
            pytest.fail(f"{text}: {error}")


def test_an_option_that_is_not_there_would_be_found():
    with pytest.raises(Exception, match="no-such-option"):
        parse(["calc", "gpt2", "--no-such-option"])


def test_each_other_line_is_a_program_that_we_know():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for block, line, found in LINES:
        match found:
            case ["make", *rest]:
                assert {word for word in rest if "=" not in word} <= targets, f"{block}: {line}"
            case ["python" | ".venv/bin/python", "-m", module, *_] if module.startswith(("tools", "bench", "training")):
                assert importlib.util.find_spec(module), f"{block}: {line}"
            case ["python" | ".venv/bin/python", file, *rest] if file.endswith(".py"):
                source = (ROOT / file).read_text()
                assert all(f'"{word}"' in source for word in rest if word.startswith("--")), f"{block}: {line}"
            case ["kvviz", *_]:
                pass
            case _ if block.text.startswith("#!"):  # a script for a batch system
                pass
            case _:
                assert found[0] in OTHERS, f"{block}: {line}"


@pytest.mark.slow
@pytest.mark.parametrize("text", [text for text, found in OURS.items() if found[0] in AT_ONCE and "gguf" not in text])
def test_what_only_computes_runs(text, kvviz):  # noqa: F811
    assert kvviz(*OURS[text]).status == 0


def smaller(arguments):
    """The same command on a tiny model, with few tokens and little time."""
    found = [SMALLER.get(word, word) for word in arguments]
    for option, value in SHORTER.items():
        if option in found:
            place = found.index(option)
            found[place : place + 2] = [] if value is None else [option, value]
    return [*found, "--model", "tiny-gpt2"] if "--preset" in found else found


@pytest.mark.long
@pytest.mark.parametrize("text", [text for text, found in OURS.items() if found[0] not in AT_ONCE | ELSEWHERE.keys()])
def test_what_measures_runs(text, kvviz, tmp_path, monkeypatch):  # noqa: F811
    if set(re.findall(r"[\w./-]+\.py\b", text)):
        pytest.skip("a file that the reader writes")
    monkeypatch.chdir(tmp_path)
    done = kvviz(*smaller(OURS[text]))
    assert done.status == 0, done.err


def test_each_example_is_python():
    for block in blocks():
        if block.language == "python":
            ast.parse(block.text)


MEASURES = re.compile(r"\b(compare|watch)\(")


def examples(measuring):
    """The pages with examples of Python, and these as one text; those that measure take seconds."""
    found = {}
    for block in blocks():
        if block.language == "python" and bool(MEASURES.search(block.text)) == measuring:
            found.setdefault(block.page, []).append(block.text)
    return [pytest.param(texts, id=page) for page, texts in found.items()]


def run(texts, folder, monkeypatch):
    monkeypatch.chdir(folder)
    for text in texts:
        exec(compile(text, "example", "exec"), {"__name__": "example"})


@pytest.mark.slow
@pytest.mark.parametrize("texts", examples(measuring=False))
def test_an_example_runs(texts, tmp_path, monkeypatch):
    run(texts, tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("texts", examples(measuring=True))
def test_an_example_that_measures_runs(texts, tmp_path, monkeypatch):
    run(texts, tmp_path, monkeypatch)


# --- links ------------------------------------------------------------------------------------------------------------


def headings(text):
    """The anchors of a page, as GitHub makes them and as mkdocs makes them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    github = {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}
    return github | {anchor(title) for title in titles}


@pytest.mark.parametrize("page", pages())
def test_its_links_lead_somewhere(page):
    text, folder = re.sub(r"```.*?```", "", pages()[page], flags=re.DOTALL), (ROOT / page).parent
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, place = target.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        file = (folder / path).resolve() if path else ROOT / page
        name = file.relative_to(ROOT).as_posix()
        made = name in pages() or name.startswith("docs/schemas/") or name.removeprefix("docs/") in AT_ROOT
        assert file.exists() or (made and page.startswith("docs/")), f"{page}: {target}"
        if place and name in pages():
            assert place in headings(pages()[name]), f"{page}: {target}"


# --- the site ---------------------------------------------------------------------------------------------------------


def navigation():
    """The paths of the pages in the site's navigation."""
    plain = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    return [
        path for group in plain["nav"] for entries in group.values() for entry in entries for path in entry.values()
    ]


def test_the_navigation_has_every_page_and_no_other():
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.glob("*.md")}
    made = {name.removeprefix("docs/") for name in pages() if name.startswith("docs/") and not (ROOT / name).exists()}
    optional = {path for group in OPTIONAL.values() for path in group.values()}
    expected = written | made | (AT_ROOT.keys() - {"code-of-conduct.md"}) | {"measurements/README.md"}
    assert set(navigation()) == expected - optional


@pytest.mark.long
@pytest.mark.worker
def test_the_site_builds_with_every_link_and_loads_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("mkdocs", reason="`make docs` installs it")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(build, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|link)\b[^>]*?(?:src|href)="([^"]+)"', page.read_text())
        assert not [address for address in loaded if re.match(r"(https?:)?//", address)], page


def test_each_page_of_the_dashboard_is_described():
    titles = re.findall(r"^## (.*)$", pages()["docs/pages.md"], re.MULTILINE)
    assert sorted(titles) == sorted(row["navigation"] for row in TEXTS.values())
