"""What people write, on the pages as Streamlit runs them: texts stay texts, and a browser's own values are checked."""

import json
from types import SimpleNamespace

import pytest
from streamlit.testing.v1 import AppTest

from kvviz.charts.curves import Curve, overlay
from kvviz.charts.layout import as_text
from kvviz.charts.memory import context_figure
from kvviz.memory.calculator import pack
from kvviz.notebook.compare import compare
from kvviz.server import persister as keeping
from kvviz.store.db.store import Store
from kvviz.store.files import exchange, reading, webpage
from kvviz.ui.folders import MAIN, PAGES
from kvviz.ui.shared.plain import APART, plain

pytestmark = pytest.mark.slow


EVIL = (
    "<img src=x onerror=alert(1)><script>alert(1)</script> [l](javascript:alert(1)) ![p](https://evil.example/p.png) "
    "https://evil.example www.evil.example a@evil.example :material/check: :red[x] $x$ `c` **b** &lt;i&gt; \x00\u202e"
)
LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100, "num_hidden_layers": 2}


@pytest.mark.parametrize(
    "text",
    [
        EVIL,
        "# a title",
        "1. one",
        "- a",
        "> q",
        "    code",
        "a\n\nb",
        "| a | b |\n|---|---|\n| c | d |",
        "==x==",
        "~~x~~",
        "_x_",
        "<https://evil.example>",
        "[a]: https://evil.example",
        "\\[a](https://evil.example)",
        "`` ` ``",
        "***",
        "---",
        "&#x3C;img>",
        "![a][b]",
        "a  \nb",
        "https\\://evil.example",
        "&colon;red[x]",
    ],
)
def test_a_text_in_markdown_is_that_text(text):
    from markdown_it import MarkdownIt

    html = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(plain(text))
    assert html.startswith("<p>") and html.count("<") == 2, html
    shown = html.removeprefix("<p>").removesuffix("</p>\n").replace(APART, "")
    for entity, letter in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        shown = shown.replace(entity, letter)
    assert shown == " ".join("".join(c if c.isprintable() else " " for c in text).split())


def test_a_long_text_is_cut():
    assert len(plain("*" * 10**6, 80)) <= 160


def test_nothing_with_a_colon_is_an_address_or_an_icon():
    for text in ("https://evil.example", "mailto:a@evil.example", ":material/check:", ":smile:", "www.evil.example"):
        assert APART in plain(text) and plain(text).replace(APART, "") == text


def test_names_in_charts_are_no_html():
    evil = "<a href='https://evil.example'>click</a><b>x</b>"
    line = overlay([Curve(evil, (1.0,), (1.0,), (1.0,), (1,), 1)]).to_json()
    memory = context_figure([(evil, [1], [1], None, 1)], 1).to_json()
    for figure in (line, memory):
        assert "&lt;a href" in figure.replace("\\u0026", "&") and "<a href" not in figure.replace("\\u003c", "<")
    assert as_text("GPT-2 & co") == "GPT-2 &amp; co"


# --- on the pages ------------------------------------------------------------------------------------------------


@pytest.fixture
def visit(open_page):
    return open_page


def markdown_of(app):
    """All that the page hands to a reader of Markdown."""
    kinds = ("markdown", "caption", "warning", "error", "info", "success", "subheader", "title", "header")
    return [element.value for kind in kinds for element in app.get(kind)] + [metric.label for metric in app.metric]


def assert_harmless(app):
    for text in markdown_of(app):
        for harm in ("<img", "<script", "](javascript", "](https://evil", "https://evil", ":material/check"):
            assert harm not in text.replace("\\<", "(escaped)").replace("\\]", "(escaped)"), text


@pytest.mark.slow
def test_a_name_from_a_link_is_text(visit):
    app = visit("memory", models=pack({**LLAMA, "_name_or_path": EVIL[:60]}))
    assert any("escaped" in text.replace("\\<", "escaped") for text in markdown_of(app))
    assert_harmless(app)


@pytest.mark.slow
def test_a_field_of_a_config_is_text(visit):
    app = visit("memory")
    for field in ("model_type", "num_hidden_layers", "layer_types", "sliding_window", "torch_dtype"):
        asked_with(app, {"models": pack({**LLAMA, field: EVIL})})
        assert_harmless(app)


def asked_with(app, params):
    """The same tab with another link."""
    app.query_params.clear()
    app.query_params.update(params)
    app.run()
    assert not app.exception


@pytest.mark.slow
def test_a_name_of_any_type_is_a_short_text(visit):
    app = visit("memory")
    for value in ({"a": ["b"]}, ["x"] * 100, 5, None, True, "", "x" * 100_000):
        asked_with(app, {"models": pack({**LLAMA, "_name_or_path": value})})
        claim = next(words.value for words in app.markdown if words.value.startswith("**The KV cache of "))
        assert len(claim.partition(" takes ")[0]) < 120


def test_numbers_of_any_size_make_a_page(visit):
    sizes = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    giant = {**LLAMA, **dict.fromkeys(sizes, 2**39)}
    assert visit("memory", models=pack(giant), tokens=str(2**29)).latex


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "params"),
    [
        ("memory", {"models": "/etc/passwd", "tokens": EVIL, "dtype": "\0", EVIL[:20]: "x"}),
        ("memory", {"models": "gpt2", "view": EVIL, "gpu": EVIL}),
        ("memory", {"models": ","}),
        ("cost", {"prompt": EVIL, "model": EVIL, "dtype": EVIL}),
        ("cost", {"model": pack({**LLAMA, "_name_or_path": EVIL})}),
        ("cost", {"model": pack({**LLAMA, "model_type": EVIL})}),
    ],
)
def test_a_link_of_anything_makes_a_page(visit, page, params):
    assert_harmless(visit(page, **params))


def test_the_live_page_says_what_was_asked_as_text(visit):
    app = visit("live")
    app.selectbox(key="model").select_index(len(app.selectbox(key="model").options) - 1).run()
    app.text_input(key="own_model").set_value(EVIL).run()
    assert not app.exception
    assert app.warning
    assert_harmless(app)


@pytest.fixture
def kept(tmp_path):
    """A store of this test's own."""
    store = Store(tmp_path / "runs.sqlite")
    keeping.use(store)
    yield store
    keeping.use(None)
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "field", "more"),
    [("live", "comparison", ()), ("sweep", "sweep", ()), ("compare", "runs", (",,,,", "a," * 5000, "%"))],
)
def test_a_page_takes_any_id(visit, kept, page, field, more):
    app = visit(page)
    for name in (EVIL, "../../etc/passwd-cached", "\0", *more):
        asked_with(app, {field: name})
        assert_harmless(app)


@pytest.mark.slow
def test_a_file_of_somebody_else_is_text_everywhere(visit, kept):
    made = compare("tiny-gpt2", prompt=EVIL.replace("\0", ""), new_tokens=4, repeats=1)
    environment = {**made.document["environment"], "device_name": EVIL[:200]}
    document = {**made.document, "model": EVIL, "environment": environment}
    one, two = (
        exchange.take_in(kept, reading.to_json([], each).encode(), title=EVIL[:150] + str(i))
        for i, each in enumerate((document, {**document, "model": EVIL[::-1]}))
    )
    app = visit("compare", runs=f"{one}-cached,{two}-uncached")
    assert app.info, "the titles and the modes differ"
    assert_harmless(app)
    app.get("toggle")[-1].set_value(True).run()
    assert_harmless(app)
    page = webpage.to_html(json.loads(json.dumps(document)), [])
    assert "<img src=x" not in page and "<script>alert" not in page


# --- a public server --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_public_form_has_no_row_that_could_only_refuse(visit, public):
    public()
    app = visit("live")
    assert not any("folder" in option or "Hugging Face" in option for option in app.selectbox(key="model").options)
    assert app.selectbox(key="weights").options == ["auto", "random"]


def test_a_public_form_offers_what_is_listed(visit, public):
    public("good/model")
    app = visit("live")
    app.selectbox(key="model").select("good/model").run()
    assert not app.exception and not app.warning
    app.button(key="run").click().run()
    assert (app.scheduler.shown().spec.model, app.scheduler.shown().spec.weights) == ("good/model", "hub")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["/etc", "evil/model", "file:///etc"])
def test_a_value_that_no_list_offers_is_not_taken(visit, public, name):
    """A browser can send any text as a list's choice."""
    public("good/model")
    app = visit("live")
    send(app, "model", name)
    assert not app.exception
    app.button(key="run").click().run()
    assert app.scheduler.shown() is None or app.scheduler.shown().spec.model != name


def send(app, key, name):
    """What a browser may say of a list, whatever the list holds."""
    box = app.selectbox(key=key)
    box.options.append(name)
    box.select(name).run()


@pytest.mark.slow
def test_a_public_memory_page_fetches_nothing_else_and_opens_no_file(visit, public, monkeypatch):
    public("good/model")
    asked = []
    monkeypatch.setattr("kvviz.models.hub_config._downloaded", lambda name, timeout: asked.append(name) or 1 / 0)
    app, refused = visit("memory"), []
    for text in ("good/model", "evil/model", "evil/model/file.gguf", __file__, __file__ + "x"):
        given = SimpleNamespace(given={"text": text})
        monkeypatch.setattr("kvviz.ui.memory.form._box", lambda given=given, **_: given)
        app.run()
        assert not app.exception
        refused.append(app.warning[0].value)
    assert asked == ["good/model"]
    assert all("open to all" in said for said in refused[1:3])
    assert all("this text" in said or "no model" in said for said in refused[3:])


# --- signing in -------------------------------------------------------------------------------------------------


AUTH = {
    "redirect_uri": "https://kv.example.org/oauth2callback",
    "cookie_secret": "a secret of the tests, long enough for a signature",
    "client_id": "kvviz",
    "client_secret": "secret",
    "server_metadata_url": "https://id.example.org/.well-known/openid-configuration",
}


def signing(user):
    app = AppTest.from_file(str(MAIN), default_timeout=30)
    app.secrets["auth"] = AUTH
    app.user = user
    return app.run()


def test_without_signing_in_there_is_no_page(scheduler_without_worker):
    app = signing({"is_logged_in": False})
    assert not app.exception
    assert [button.label for button in app.button] == ["Sign in"]
    for page in ("live", "memory", "compare", "sweep"):
        app.switch_page(str(PAGES / f"{page}.py")).run()
        assert [button.label for button in app.button] == ["Sign in"] and not app.selectbox and not app.dataframe


def test_who_has_signed_in_sees_it_and_can_leave(scheduler_without_worker):
    app = signing({"is_logged_in": True, "name": EVIL})
    app.switch_page(str(PAGES / "memory.py")).run()
    assert not app.exception
    assert app.latex and "Sign out" in [button.label for button in app.button]
    assert_harmless(app)


def test_without_a_provider_nobody_is_asked(visit):
    assert "Sign in" not in [button.label for button in visit("memory").button]


def test_only_a_cookie_that_streamlit_signed_counts(monkeypatch):
    from streamlit.web.server.starlette import starlette_app_utils, starlette_websocket

    from kvviz.ui.shared import session

    monkeypatch.setattr(session, "has_provider", lambda: True)
    monkeypatch.setattr(starlette_websocket, "get_cookie_secret", lambda: AUTH["cookie_secret"])

    def signed(secret, **user):
        name = starlette_websocket.USER_COOKIE_NAME
        return {name: starlette_app_utils.create_signed_value(secret, name, json.dumps(user)).decode()}

    good = signed(AUTH["cookie_secret"], is_logged_in=True, origin="https://kv.example.org")
    assert session.may_follow(good)
    assert not session.may_follow(signed("another secret", is_logged_in=True))
    assert not session.may_follow(signed(AUTH["cookie_secret"], is_logged_in=False))
    assert not session.may_follow(signed(AUTH["cookie_secret"]))
    assert not session.may_follow({})
    assert not session.may_follow({starlette_websocket.USER_COOKIE_NAME: '{"is_logged_in": true}'})
    tampered = {name: value[:-3] + "abc" for name, value in good.items()}
    assert not session.may_follow(tampered)
