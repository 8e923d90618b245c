"""The facts of `family_costs.toml`, by the names that its tables have there."""

import tomllib
from pathlib import Path
from typing import Any

FAMILY_COSTS: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
