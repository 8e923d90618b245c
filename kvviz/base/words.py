"""Small quantities as people read them: bytes, durations, milliseconds, ordinals."""


def human(n: float) -> str:
    """Bytes in powers of 1024 with their unit: 28672 -> '28.0 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n) < 1024:
            return f"{n:.0f} B" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.2f} TiB"


def lasting(seconds: float) -> str:
    """A duration for people: 0.4 s, 25 s, 3 min, 2.5 h."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.{0 if seconds >= 10 * size else 1}f} {unit}"
    return f"{seconds:.{0 if seconds >= 10 else 1}f} s"


def millis(seconds: float) -> str:
    """Milliseconds with three digits, or all of them."""
    ms = seconds * 1e3
    return f"{ms:,.0f} ms" if ms >= 1000 else f"{ms:.3g} ms"


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th."""
    last = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"
