"""Figures on a dark page: every colour stands out from it, and colours that were told apart still are."""

import json

import plotly.graph_objects as go
import pytest

from kvviz.charts import caches, cost, palette, roofline, serving
from kvviz.charts.layout import HEIGHT, INK, blank, for_page

PAGE = "#11161c"  # of .streamlit/config.toml
TABLES = {
    "modes": palette.LIGHT.values(),
    "series": palette.SERIES,
    "kinds": set(palette.KINDS.values()),
    "cost": [colour for _, colour in cost.PARTS.values()],
    "roofline": roofline.COLOURS.values(),
    "profile": [colour for _, colour in roofline.CLASSES.values()],
    "waste": [colour for _, colour in serving.PARTS.values()],
    "held": [colour for _, colour in (*caches.HELD, *caches.WRITTEN)],
}


def contrast(one, other):
    """WCAG's contrast ratio, 1 to 21: https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio"""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def dark(figure):
    return json.loads(for_page(figure, dark=True)[0])


def drawn(colours):
    """The colours of lines as they come out on a dark page."""
    figure = dark(go.Figure([go.Scatter(x=[1], y=[1], line={"color": colour}) for colour in colours]))
    return [trace["line"]["color"] for trace in figure["data"]]


@pytest.mark.parametrize("table", TABLES)
def test_every_colour_stands_out_and_stays_another(table):
    colours = list(dict.fromkeys(TABLES[table]))
    lighter = drawn(colours)
    assert min(contrast(colour, PAGE) for colour in lighter) >= 4.5
    assert len(set(lighter)) == len(set(colours))


def test_a_modes_colour_is_the_live_components():
    assert drawn(palette.LIGHT.values()) == list(palette.DARK.values())


def test_only_colours_are_changed():
    scale = [[0, "#0072B2"], [1, "#D55E00"]]
    figure = go.Figure(go.Heatmap(z=[[1, 2]], colorscale=scale, text=[["#0072B2", "b"]], name="#1"))
    figure.update_layout(title="#0072B2 is not a title's colour", hoverlabel_font_color="#888888")
    shown = dark(figure)
    (trace,) = shown["data"]
    assert [colour for _, colour in trace["colorscale"]] == [palette.ON_DARK[colour] for _, colour in scale]
    assert trace["text"][0][0] == "#0072B2" and trace["name"] == "#1"
    assert shown["layout"]["title"]["text"] == figure.layout.title.text
    assert shown["layout"]["hoverlabel"]["font"]["color"] == "#888888"
    assert figure.data[0].colorscale[0][1] == "#0072B2"


def test_a_page_gets_a_figure_without_a_template_and_with_a_height():
    for height, tall in ((None, HEIGHT), (200, 200)):
        text, given = for_page(blank("x", "y", height=height), dark=False)
        layout = json.loads(text)["layout"]
        assert "template" not in layout and given == layout["height"] == tall
        assert layout["font"]["color"] == INK
