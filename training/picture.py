"""Draw a loss curve as SVG."""

import math
from collections.abc import Sequence

_SVG_WIDTH, _SVG_HEIGHT, _MARGIN = 640, 320, 48


def _path(points: list[tuple[float, float]], color: str) -> str:
    steps = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline fill="none" stroke="{color}" stroke-width="2" points="{steps}"/>'


def curve_svg(curve: Sequence[Sequence[float]], batch_tokens: int, ngram_loss: float) -> str:
    """Draw held-out and training loss over tokens, with the n-gram baseline as a dashed line."""
    last = max(row[0] for row in curve)
    low = math.floor(min(min(row[1:]) for row in curve) * 4) / 4
    high = math.ceil(max(ngram_loss, *(max(row[1:]) for row in curve)) * 4) / 4
    frame = _Frame(last, low, high)
    parts = [frame.axes(last * batch_tokens), frame.dashed(ngram_loss)]
    parts.append(_path([frame.point(row[0], row[1]) for row in curve], "#9aa7b5"))
    parts.append(_path([frame.point(row[0], row[2]) for row in curve], "#1f5fbf"))
    parts.append(_legend())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SVG_WIDTH} {_SVG_HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="12"><title>Loss over training tokens</title>'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


class _Frame:
    """Maps steps and losses to picture coordinates."""

    def __init__(self, last: int, low: float, high: float):
        self.last, self.low, self.high = last, low, high

    def point(self, step: float, loss: float) -> tuple[float, float]:
        x = _MARGIN + (_SVG_WIDTH - 2 * _MARGIN) * step / self.last
        y = _SVG_HEIGHT - _MARGIN - (_SVG_HEIGHT - 2 * _MARGIN) * (loss - self.low) / (self.high - self.low)
        return x, y

    def axes(self, tokens: int) -> str:
        """Draw grid lines at evenly spaced losses and labels at the ends of the token axis."""
        lines = []
        for k in range(5):
            loss = self.low + (self.high - self.low) * k / 4
            x, y = self.point(0, loss)
            lines.append(
                f'<line x1="{x}" x2="{_SVG_WIDTH - _MARGIN}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e3e7ec"/>'
                f'<text x="{x - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#333">{loss:.2f}</text>'
            )
        bottom = _SVG_HEIGHT - _MARGIN + 18
        lines.append(
            f'<text x="{_MARGIN}" y="{bottom}" fill="#333">0</text><text x="{_SVG_WIDTH - _MARGIN}" '
            f'y="{bottom}" text-anchor="end" fill="#333">{tokens:,} tokens</text>'
        )
        return "".join(lines)

    def dashed(self, loss: float) -> str:
        """Draw a dashed horizontal line at a loss."""
        x, y = self.point(0, loss)
        return (
            f'<line x1="{x}" x2="{_SVG_WIDTH - _MARGIN}" y1="{y:.1f}" y2="{y:.1f}" stroke="#c2571a" '
            'stroke-dasharray="6 4"/>'
        )


def _legend() -> str:
    entries = (("#1f5fbf", "held-out"), ("#9aa7b5", "training"), ("#c2571a", "5-gram, held-out"))
    parts = [
        f'<rect x="{400}" y="{20 + 18 * k}" width="14" height="4" fill="{color}"/>'
        f'<text x="420" y="{26 + 18 * k}" fill="#333">{label}, nats per token</text>'
        for k, (color, label) in enumerate(entries)
    ]
    return "".join(parts)
