"""The command line as scripts see it: what is printed where, and the exit status."""

import subprocess
import sys

import pytest

from kvviz.base.paths import CHECKOUT


def process(*arguments, code=("-m", "kvviz")):
    return subprocess.run([sys.executable, *code, *arguments], cwd=CHECKOUT, capture_output=True, text=True)


@pytest.mark.slow
def test_bad_input_in_a_process_is_one_sentence_and_status_2():
    done = process("calc", "no-such-model")
    assert (done.returncode, done.stdout) == (2, "")
    assert "catalog id" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["frobnicate"], "No such command"),
        (["run"], "--model"),
        (["run", "--model", "tiny-gpt2", "--new-tokens", "many"], "--new-tokens"),
    ],
)
def test_bad_usage_is_one_sentence_and_status_2(refused, arguments, says):
    refused(says, *arguments)


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
