"""Small quantities as people read them: bytes, durations, milliseconds, ordinals.

A value is rounded before its unit is chosen: 1048575 B is 1.0 MiB, not 1024.0 KiB. Halves are rounded away from 0, as
the pages' scripts do it: 2.25 GiB is 2.3 GiB in both.
"""

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal

LARGE = Context(prec=330, rounding=ROUND_HALF_UP)  # digits enough for any float


def fixed(value: float, digits: int) -> str:
    """A number with so many decimals, as JavaScript's toFixed writes it: (2.25, 1) -> '2.3', where Python has 2.2."""
    return str(Decimal(float(value)).quantize(Decimal(1).scaleb(-digits), context=LARGE))


def human(n: float) -> str:
    """Bytes in powers of 1024 with their unit: 28672 -> '28.0 KiB'."""
    for unit, digits in (("B", 0), ("KiB", 1), ("MiB", 1), ("GiB", 1)):
        if abs(float(said := fixed(n, digits))) < 1024:
            return f"{said} {unit}"
        n /= 1024
    return f"{fixed(n, 2)} TiB"


def lasting(seconds: float) -> str:
    """A duration: 0.4 s, 25 s, 3.0 min, 2.5 h."""
    value, unit = next(
        ((seconds / size, unit) for size, unit in ((3600, "h"), (60, "min")) if seconds >= 1.5 * size), (seconds, "s")
    )
    return f"{fixed(value, 1 if float(fixed(value, 1)) < 10 else 0)} {unit}"


def millis(seconds: float, digits: int = 3) -> str:
    """Milliseconds with three digits, or two for a title that rests on one run; from 1,000 ms on with all of them."""
    ms = seconds * 1e3
    rounded = float(f"{ms:.{digits}g}")
    return f"{ms if ms >= 999.5 else rounded:,.0f} ms" if rounded >= 1000 else f"{rounded:g} ms"


def aligned_millis(seconds: float, digits: int = 3) -> str:
    """As `millis`, with a 0 at the end where that is a digit: 0.70 ms, for figures that stand below one another."""
    ms = f"{seconds * 1e3:#.{digits}g}"
    return millis(seconds, digits) if "e" in ms or ms.endswith(".") else f"{ms} ms"


def brief(seconds: float, digits: int = 3) -> str:
    """Milliseconds, or seconds from one second on, with three digits or as many as given: a figure in a sentence."""
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    return f"{float(f'{seconds:.{digits}g}'):g} s" if seconds >= 1 else f"{float(f'{seconds * 1e3:.{digits}g}'):g} ms"


def human_range(least: int, most: int) -> str:
    """Bytes between two numbers: '1.5 GiB to 2.0 GiB', and '1.5 GiB' where both are the same."""
    return human(most) if least == most else f"{human(least)} to {human(most)}"


def two_digits(count: float) -> str:
    """A figure that rests on some dozens of counts, which know no third digit: 62.87 -> '63', 1234 -> '1,200'."""
    return f"{float(f'{count:.2g}'):,g}"


def in_one_unit(sizes: Sequence[int]) -> list[str]:
    """Bytes in the largest one's unit, if none is less than a tenth of it."""
    name = human(max(sizes)).split()[1]
    unit = {"MiB": 2**20, "GiB": 2**30}.get(name)
    if not unit or 10 * min(sizes) < unit:
        return [human(n) for n in sizes]
    return [f"{n / unit:.1f} {name}" if n >= unit else f"{two_digits(n / unit)} {name}" for n in sizes]


def ratio(value: float) -> str:
    """How many times one figure is another, in two digits, or all before the point: 4.49 -> '4.5', 228.2 -> '228'."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.95 else f"{value:.2g}"


def small(value: float) -> str:
    """A number in two digits, one below a thousandth with a power of ten: 0.037, 1.8 × 10⁻⁵."""
    if value == 0 or abs(value) >= 1e-3:
        return two_digits(value)
    digits, power = f"{value:.1e}".split("e")
    return f"{float(digits):g} × 10{str(int(power)).translate(RAISED)}"


RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th."""
    last = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"
