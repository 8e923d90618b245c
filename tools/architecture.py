"""Draw the packages of kvviz/ from their imports: `python -m tools.architecture` writes docs/assets/architecture.svg.

An arrow says that one package imports another. An arrow is left out where a longer way says the same (the transitive
reduction), so the picture shows on what each package stands and stays readable. A test draws it again and compares.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs/assets/architecture.svg"
TOP = "app.py, pages/"
WIDTH, HEIGHT, GAP, RISE, MARGIN, SIDE = 132, 34, 28, 60, 20, 70
WITH_TORCH, WITHOUT = "#F3C25B", "#BFE0F5"


def imports() -> tuple[dict[str, set[str]], set[str]]:
    """What each package imports of the others, and the packages of which a file imports torch."""
    found: dict[str, set[str]] = {}
    with_torch = set()
    for package, path in _files():
        names = set(_imported(path))
        found.setdefault(package, set()).update(name.split(".")[1] for name in names if name.startswith("kvviz."))
        if any(name.partition(".")[0] == "torch" for name in names):
            with_torch.add(package)
    return {package: others & found.keys() - {package} for package, others in found.items()}, with_torch


def _files() -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / "kvviz").rglob("*.py")):
        parts = path.relative_to(ROOT / "kvviz").parts
        if len(parts) > 1:
            yield parts[0], path
    for path in [ROOT / "app.py", *sorted((ROOT / "pages").glob("*.py"))]:
        yield TOP, path


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "kvviz":
            yield from (f"kvviz.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def reduced(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The same graph without the arrows for which there is a longer way."""

    def reached(package: str) -> set[str]:
        return set().union(*({other} | reached(other) for other in graph[package]), set())

    return {
        package: {other for other in others if not any(other in reached(between) for between in others - {other})}
        for package, others in graph.items()
    }


def levels(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The packages in rows, lowest first: each stands above all that it imports, and near what it stands on."""
    height: dict[str, int] = {}

    def high(package: str) -> int:
        if package not in height:
            height[package] = 1 + max((high(other) for other in graph[package]), default=-1)
        return height[package]

    rows: list[list[str]] = [[] for _ in range(1 + max(map(high, graph)))]
    for package in sorted(graph):
        rows[high(package)].append(package)
    place = {package: _centre(number, len(row)) for row in rows for number, package in enumerate(row)}
    for row in rows[1:]:
        row.sort(key=lambda package: (_mean([place[other] for other in graph[package]]), package))
        place.update({package: _centre(number, len(row)) for number, package in enumerate(row)})
    return rows


def _centre(number: int, count: int) -> float:
    return (number - (count - 1) / 2) * (WIDTH + GAP)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def drawn() -> str:
    """The picture as SVG."""
    graph, with_torch = imports()
    graph = reduced(graph)
    rows = levels(graph)
    width = max(len(row) for row in rows) * (WIDTH + GAP) - GAP + 2 * (MARGIN + SIDE)
    height = len(rows) * RISE - (RISE - HEIGHT) + 2 * MARGIN + 36
    at = {
        package: (width / 2 + _centre(number, len(row)), MARGIN + (len(rows) - 1 - level) * RISE)
        for level, row in enumerate(rows)
        for number, package in enumerate(row)
    }
    arrows = [
        _arrow(*at[package], *at[other], width / 2) for package in sorted(graph) for other in sorted(graph[package])
    ]
    boxes = [_box(package, *at[package], package in with_torch) for package in sorted(graph)]
    legend = [
        _swatch(MARGIN + SIDE, height - 26, WITH_TORCH, "imports torch"),
        _swatch(MARGIN + SIDE + 140, height - 26, WITHOUT, "never imports torch"),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        'font-family="system-ui, sans-serif" font-size="15">'
    )
    about = "<title>The packages of kvviz: each imports those below it to which an arrow leads</title>"
    ground = f'<rect width="{width:.0f}" height="{height:.0f}" fill="#FFFFFF"/>'
    tip = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#5B6673"/></marker></defs>'
    )
    return "\n".join([head, about, ground, tip, *arrows, *boxes, *legend, "</svg>", ""])


def _arrow(x: float, y: float, to_x: float, to_y: float, middle: float) -> str:
    """An arrow to the next row goes straight down; one to a lower row goes around the boxes between, on its side."""
    if to_y - y <= RISE:
        bottom, bend = y + HEIGHT, (to_y - y - HEIGHT) / 2
        curve = f"M{x:.0f} {bottom:.0f}C{x:.0f} {bottom + bend:.0f} {to_x:.0f} {to_y - bend:.0f} {to_x:.0f} {to_y:.0f}"
    else:
        side = -1 if to_x <= middle else 1
        edge, far = side * WIDTH / 2, middle + side * (middle + MARGIN)
        y, to_y = y + HEIGHT / 2, to_y + HEIGHT / 2
        curve = f"M{x + edge:.0f} {y:.0f}C{far:.0f} {y:.0f} {far:.0f} {to_y:.0f} {to_x + edge:.0f} {to_y:.0f}"
    return f'<path d="{curve}" fill="none" stroke="#5B6673" stroke-width="1.5" marker-end="url(#tip)"/>'


def _box(package: str, x: float, y: float, torch: bool) -> str:
    name = package if package == TOP else f"{package}/"
    colour = WITH_TORCH if torch else WITHOUT
    return (
        f'<rect x="{x - WIDTH / 2:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="8" fill="{colour}" '
        f'stroke="#27303D"/><text x="{x:.0f}" y="{y + 22:.0f}" text-anchor="middle" fill="#16202B">{name}</text>'
    )


def _swatch(x: float, y: float, colour: str, words: str) -> str:
    return (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="14" height="14" rx="3" fill="{colour}" stroke="#27303D"/>'
        f'<text x="{x + 20:.0f}" y="{y + 12:.0f}" font-size="13" fill="#16202B">{words}</text>'
    )


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
    print(PICTURE)
