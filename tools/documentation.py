"""mkdocs' hook: the pages of the documentation that are made from the code, so that they cannot fall behind it.

The command line comes from typer, the tour from `tour.toml`, the schemas from the checked types of files. What stands
at the repository's root, such as ARCHITECTURE.md, is taken from there. `make docs` builds the site.
"""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from kvviz.cli.main import app
from kvviz.store.files.json_schemas import SCHEMAS, schema
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.frame.tour import STOPS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
AT_ROOT = {
    "architecture.md": "ARCHITECTURE.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "code-of-conduct.md": "CODE_OF_CONDUCT.md",
}
# pages that a bench writes; in the navigation once they are there
OPTIONAL = {"Trust": {"Scoreboard": "scoreboard.md"}}

COMMANDS = """\
# Command line

`kvviz COMMAND --help` says the same in a terminal. With `--json` a command prints one JSON document on standard output
and nothing else there ([its fields](json.md)). What can't be done is one sentence on standard error, and exit status 2.
"""
SCHEMAS_PAGE = """\
# JSON schemas

They are made from the types with which kvviz checks a file, as [JSON Schema](https://json-schema.org) 2020-12. A schema
holds the type and the range of each field. How fields have to agree with one another ([JSON](json.md)) is checked when
a file is read. Fields that a schema does not name are allowed and ignored.

| schema | of what |
|---|---|
{rows}

```python
import json

import jsonschema

from kvviz import compare
from kvviz.store.files.json_schemas import schema

document = compare("tiny-gpt2", new_tokens=4, repeats=1).document
jsonschema.validate(json.loads(json.dumps(document)), schema("comparison"))
```

Which fields stay, and how one is withdrawn, stands in [Changes](changelog.md#what-stays).
"""


def on_config(config: Any) -> Any:
    """Add the pages that are there to the navigation."""
    for group in config.nav:
        for title, pages in group.items():
            pages += [{name: path} for name, path in OPTIONAL.get(title, {}).items() if (DOCS / path).exists()]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and schemas that are made here to those of docs/."""
    from mkdocs.structure.files import File  # only the build of the site has it

    for path, text in generated():
        files.append(File.generated(config, path, content=text))
    return files


def generated() -> Iterator[tuple[str, str]]:
    """Every file that is made, with its path in the site."""
    yield "commands.md", commands()
    yield "tour.md", tour()
    yield "schemas.md", schemas()
    for name in SCHEMAS:
        yield f"schemas/{name}.json", json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n"
    for path, source in AT_ROOT.items():
        yield path, from_root((ROOT / source).read_text(encoding="utf-8"))


def from_root(text: str) -> str:
    """Turn the links of a file at the root into those of a file in docs/; what the site lacks becomes plain text."""
    moved = {source: path for path, source in AT_ROOT.items()}

    def link(match: re.Match[str]) -> str:
        words, target = match.groups()
        path, mark, anchor = target.partition("#")
        if "://" in target or not path:
            return match.group(0)
        if path in moved:
            return f"[{words}]({moved[path]}{mark}{anchor})"
        if path.startswith("docs/") and (ROOT / path).is_file():
            return f"[{words}]({path.removeprefix('docs/')}{mark}{anchor})"
        return words

    return re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", link, text)


def tour() -> str:
    """The tour's stops as text."""
    parts = [
        "# The tour\n",
        "Six stops on the real pages. **Begin the tour** on the first page leads along them; here they are as text.\n",
    ]
    for stop in STOPS:
        parts += [
            f"## {stop.number}. {stop.title}\n",
            f"{stop.say}\n",
            f"- **Where:** [{TEXTS[stop.page]['navigation']}](pages.md#{anchor(TEXTS[stop.page]['navigation'])})",
            f"- **Do:** {stop.press}",
            f"- **Notice:** {stop.notice}\n",
        ]
    return "\n".join(parts)


def anchor(title: str) -> str:
    """The anchor that mkdocs gives a heading."""
    return re.sub(r"[^\w-]+", "-", title.lower()).strip("-")


def commands() -> str:
    """Every command with its arguments and options, as typer knows them."""
    group: Any = typer.main.get_command(app)
    parts = [COMMANDS]
    for name, command in group.commands.items():
        parts += [f"## {name}\n", f"{command.help}\n", f"```text\n{_usage(name, command)}\n```\n"]
        context = typer.Context(command, info_name=name)
        options = [param for param in command.params if param.param_type_name == "option"]
        if options:
            parts += [
                "| option | meaning | default |",
                "|---|---|---|",
                *(_option(param, context) for param in options),
                "",
            ]
    return "\n".join(parts)


def _usage(name: str, command: Any) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    words = [param.name.upper() if param.required else f"[{param.name.upper()}]" for param in arguments]
    many = [f"{word} ..." if param.nargs == -1 else word for word, param in zip(words, arguments, strict=True)]
    return " ".join(["kvviz", name, *many, "[OPTIONS]"])


def _option(param: Any, context: Any) -> str:
    value = "" if param.is_flag else f" {param.display_type(context)}"
    names = ", ".join(f"`{name}{value}`" for name in (*param.opts, *param.secondary_opts))
    meaning = (param.help or "").replace("|", "\\|")
    if param.required:
        return f"| {names} | {meaning} | required |"
    told = param.default is not None and param.default is not False and param.default != ""
    return f"| {names} | {meaning} | {f'`{param.default}`' if told else ''} |"


def schemas() -> str:
    """The list of the schemas."""
    rows = [f"| [{name}.json](schemas/{name}.json) | {row.about} |" for name, row in SCHEMAS.items()]
    return SCHEMAS_PAGE.format(rows="\n".join(rows))


def on_post_build(config: Any) -> None:
    """Remove what no reader's browser asks for: maps of the theme's sources, and the search in other languages."""
    scripts = Path(config.site_dir) / "assets/javascripts"
    shutil.rmtree(scripts / "lunr")
    for path in Path(config.site_dir).rglob("*.map"):
        path.unlink()
