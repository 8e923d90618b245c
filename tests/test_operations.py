"""docs/operations.md says what there is: every setting with its values, every variable, every command's options."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
import typer

from kvviz.base.settings import PUBLIC, Limits, Settings, read_settings
from kvviz.cli.main import app
from kvviz.server.feed import health

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs/operations.md").read_text()


@pytest.mark.parametrize("name", [field.name for field in fields(Limits)])
def test_each_limit_stands_there_with_both_values(name):
    (row,) = re.findall(rf"^\| `{name}` \|.*\|(.*)\|(.*)\|$", TEXT, re.MULTILINE)
    assert [float(value.replace(",", "")) for value in row] == [getattr(Limits(), name), getattr(PUBLIC, name)]


def test_each_setting_stands_there():
    assert all(
        f"`{field.name}`" in TEXT or f"{field.name} = " in TEXT for field in fields(Settings) if field.name != "limits"
    )


def test_the_example_is_one():
    (example,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    assert read_settings(example, public=False).limits.new_tokens == 256


def test_each_variable_that_is_read_stands_there():
    code = "\n".join(path.read_text() for path in [ROOT / "app.py", *(ROOT / "kvviz").rglob("*.py")])
    read = set(re.findall(r'environ(?:\.get\(|\[)"([A-Z_]+)"', code))
    assert {"HOST", "PORT", "KVVIZ_HOME", "KVVIZ_LOG", "KVVIZ_MODELS", "KVVIZ_PUBLIC", "KVVIZ_SETTINGS"} <= read
    assert {name for name in read - {"XDG_DATA_HOME"} if f"`{name}`" not in TEXT} == set()


def test_each_event_of_a_log_stands_there():
    code = "\n".join(path.read_text() for path in [ROOT / "app.py", *(ROOT / "kvviz").rglob("*.py")])
    events = set(re.findall(r'event\(log, "(\w+)"', code)) | {"work_failed", "uncaught"}
    assert len(events) > 10 and {name for name in events if f"`{name}`" not in TEXT} == set()


def test_the_health_check_is_shown_as_it_is(scheduler_without_worker):
    (example,) = re.findall(r'\{"status": "ok".*\}', TEXT)
    _, told = health(scheduler_without_worker, 0)
    assert re.findall(r'"(\w+)":', example) == list(told)


@pytest.mark.parametrize("name", ["pull", "ready", "ceilings"])
def test_each_option_of_the_commands_stands_there(name):
    params = typer.main.get_command(app).commands[name].params
    (usage,) = re.findall(rf"^kvviz {name} .*\[.*$", TEXT, re.MULTILINE)
    options = [set(param.opts) for param in params if param.opts[0].startswith("-")]
    assert len(options) >= 2 and all(
        any(f"{word} " in usage or f"{word}]" in usage for word in each) for each in options
    )


def test_its_links_lead_somewhere():
    anchors = {
        re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-") for line in re.findall(r"^## (.*)$", TEXT, re.M)
    }
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        else:
            assert (ROOT / "docs" / target).is_file(), target
    assert "docs/operations.md" in (ROOT / "README.md").read_text()
