"""The command line as scripts see it, each in a process of its own: what is printed where, and the exit status."""

import json
import subprocess
import sys

import pytest

from kvviz.base.paths import CHECKOUT


def process(*arguments, stdin=None, code=("-m", "kvviz")):
    return subprocess.run(
        [sys.executable, *code, *arguments], cwd=CHECKOUT, capture_output=True, text=True, input=stdin
    )


@pytest.mark.slow
def test_a_command_prints_one_document():
    done = process("run", "--model", "tiny-mistral", "--prompt-tokens", "40", "--new-tokens", "5", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["identical"] is True


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["frobnicate"], "No such command"),
        (["run"], "--model"),
        (["run", "--model", "tiny-gpt2", "--new-tokens", "many"], "--new-tokens"),
        (["calc", "no-such-model"], "catalog id"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(arguments, says):
    done = process(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_starting_it_imports_nothing_heavy():
    code = "import sys, kvviz.cli.main; print(*{'torch', 'transformers', 'streamlit', 'sqlalchemy'} & set(sys.modules))"
    assert process(code=("-c", code)).stdout == "\n"


def test_each_command_says_what_it_is_for(kvviz):
    import typer

    from kvviz.cli.main import app

    commands = typer.main.get_command(app).commands
    help_text = kvviz("--help").out
    assert set(commands) >= {"models", "calc", "probe", "cost", "run", "export", "import", "sweep", "ceilings"}
    assert all(f"│ {name} " in help_text and command.help for name, command in commands.items())
    assert all(param.help for command in commands.values() for param in command.params)
