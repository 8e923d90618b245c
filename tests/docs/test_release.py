"""What a release states in more than one place agrees: versions, requirements, checks, the picture of the packages."""

import json
import re
import tomllib

import pytest
import yaml
from PIL import Image

import kvviz
from tests.docs.pages import ROOT
from tools import architecture, screens

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(path):
    return yaml.safe_load((ROOT / path).read_text())


def test_every_place_names_the_same_version():
    citation, recipe = read("CITATION.cff"), read("recipe/recipe.yaml")
    latest = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert citation["version"] == recipe["context"]["version"] == latest[1] == kvviz.__version__


def test_the_conda_recipe_asks_for_what_the_package_and_its_dashboard_ask_for():
    run = read("recipe/recipe.yaml")["requirements"]["run"]
    asked = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dashboard"]]
    expected = {re.sub(r"^torch(?=>)", "pytorch", line) for line in asked}
    expected.add(f"python{PROJECT['requires-python']}")
    assert {line.replace(" ", "") for line in run} == expected


def test_a_commit_a_pull_request_and_a_contributor_run_the_same_checks():
    hooks = {hook["id"]: hook["entry"] for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]}
    jobs = read(".github/workflows/ci.yml")["jobs"]
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert hooks["check"] == "make check" and "make check" in (ROOT / ".ci/run").read_text()
    assert commands["tests"] == [".ci/run"] and "make docs" in commands["site"]


def test_the_forms_ask_for_something_and_the_container_for_editors_sets_everything_up():
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        assert path.name == "config.yml" or any(row.get("validations", {}).get("required") for row in form["body"])
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert "make .venv/.dev .venv/.docs" in container["postCreateCommand"]


def test_the_picture_of_the_packages_is_that_of_the_imports():
    assert architecture.PICTURE.read_text() == architecture.drawn(), "`make picture` draws it anew"


def test_an_arrow_is_left_out_where_a_longer_way_says_the_same():
    graph = {"a": set(), "b": {"a"}, "c": {"a", "b"}, "d": {"a"}}
    assert architecture.reduced(graph) == {"a": set(), "b": {"a"}, "c": {"b"}, "d": {"a"}}
    assert architecture.levels(architecture.reduced(graph)) == [["a"], ["b", "d"], ["c"]]


def test_the_readme_is_a_screen_and_its_animation_small():
    assert len((ROOT / "README.md").read_text().splitlines()) < 80
    path = screens.DOCS / f"{screens.ANIMATION}.gif"
    with Image.open(path) as film:
        assert film.n_frames > 10 and path.stat().st_size < screens.LARGEST


def test_the_peers_have_a_source_and_a_date():
    text = (ROOT / "README.md").read_text().partition("## Beside others")[2].partition("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| [")]
    assert len(rows) >= 6 and all("](https://" in row and len(row.split(" | ")) == 4 for row in rows)
    assert re.search(r"\b20\d\d\b", text)


@pytest.mark.parametrize("name", screens.SCREENS)
def test_each_picture_of_the_pages_is_there(name):
    assert (screens.DOCS / f"{name}.png").is_file()
