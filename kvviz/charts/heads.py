"""Draws which query heads of a layer share a KV head, and the bytes that this spares, as HTML."""

import html
from pathlib import Path

from kvviz.charts import palette
from kvviz.models.layers import LayerSpec

_COLOURS = {"asks": palette.REFERENCE, "holds": palette.KEPT}
_SHADES = "".join(f"--kv-{name}: light-dark({one}, {palette.ON_DARK[one]}); " for name, one in _COLOURS.items())
_CSS = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
STYLE = f"<style>\n.kv-sharers {{ {_SHADES}}}\n{_CSS}</style>"


def heads_drawing(layer: LayerSpec, heads: int, held: int, own: int, claim: str) -> str:
    """Draw a block for each KV head with the query heads that read it, and the bytes to scale, for a page with STYLE.

    `held` are the bytes of what is kept, `own` those of a KV head for each query head; `claim` is read aloud.
    """
    latent = layer.kind == "latent"
    kept = 1 if latent else layer.kv_heads
    size = heads // kept
    block = f"<div><p>{'<i></i>' * size}</p><b></b></div>"
    what = "the latent row" if latent else "keys and values of one KV head"
    bars = (
        ("if each query head had its own", own, "kv-unkept"),
        ("kept: the latent row" if latent else f"kept: {kept} KV head{'s' * (kept > 1)}", held, ""),
    )
    drawn = "".join(
        f'<span>{words}</span><div><i class="{kind}" style="--kv-part: {taken / own:.4f}"></i><b>{taken:,} B</b></div>'
        for words, taken, kind in bars
    )
    return (
        f'<div class="kv-sharers"><div class="kv-sharerskey"><span><i></i>query head: it asks, '
        f"and nothing of it is kept</span><span><b></b>{what}, kept for each token</span></div>"
        f'<div class="kv-blocksof" style="--kv-least: {20 * min(size, 6) + 10}px" role="img" '
        f'aria-label="{html.escape(claim)}">{block * kept}</div>'
        f'<div class="kv-bytesof">{drawn}</div></div>'
    )
