"""How llama.cpp was started, as far as it decides its cache: types, layout, windows, slots.

Source: https://github.com/ggml-org/llama.cpp/blob/0c1e57098/src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp and
llama-context.cpp there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvviz.base.errors import ConfigError
from kvviz.base.precision import Precision, precision
from kvviz.models.config_fields import checked
from kvviz.models.layers import LayerSpec

CELLS = 256  # a sequence's cells are padded to a multiple of this
UBATCH = 512  # tokens of the physical batch, which a window's cache holds on top


def padded(number: int, to: int) -> int:
    """The next multiple of `to`."""
    return -(-number // to) * to


@dataclass(frozen=True)
class LlamaCpp:
    """The options of a start. `values`: the type of the values' cache, empty for that of the keys (-ctk, -ctv).

    `unified`: all sequences share one cache (--kv-unified), else each has a slot of its own. `ubatch`: -ub.
    """

    values: str = ""
    flash_attention: bool = True
    swa_full: bool = False
    unified: bool = False
    ubatch: int = UBATCH

    def __post_init__(self) -> None:
        checked("ubatch", self.ubatch)

    def cells(self, window: int | None, tokens: int, sequences: int = 1) -> int:
        """Cells of a layer for all sequences together.

        After 2,000 tokens a layer has 2,048 cells, one with a window of 1,024 has 1,536, and so it stays.
        """
        shared = sequences if self.unified else 1  # sequences in one stream of cells
        cells = padded(tokens * shared, CELLS)
        if window is not None and not self.swa_full:
            cells = padded(min(cells, window * shared + self.ubatch), CELLS)
        return cells * (sequences // shared)

    def token_bytes(self, layers: Sequence[LayerSpec], keys: Precision) -> list[int]:
        """Bytes of one cell in each layer. Raises ConfigError for what llama.cpp refuses to start with.

        Without flash attention values are stored transposed, all layers' as wide as the widest.
        """
        values = precision(self.values) if self.values else keys
        if values.block > 1 and not self.flash_attention:
            raise ConfigError(f"llama.cpp keeps values in {values.name} only with flash attention (-fa on)")
        if values != keys and any(layer.latent for layer in layers):
            raise ConfigError(
                f"llama.cpp keeps latent rows in one type; -ctk and -ctv have to be the same, not {keys.name} and "
                f"{values.name}"
            )
        own = [layer for layer in layers if layer.kind not in ("cross", "none", "shared", "linear")]
        widest = 0 if self.flash_attention else max((layer.kv_heads * layer.value_dim for layer in own), default=0)
        return [self._cell(layer, keys, values, widest) for layer in layers]

    def _cell(self, layer: LayerSpec, keys: Precision, values: Precision, widest: int) -> int:
        index = keys.row(1, layer.index_dim)
        if layer.latent:  # one row, of the keys' type
            return keys.row(1, layer.key_dim + layer.value_dim) + index
        if not layer.kv_heads:
            return 0
        if self.flash_attention:
            for kind, width in ((keys, layer.key_dim), (values, layer.value_dim)):
                if width % kind.block:
                    raise ConfigError(
                        f"llama.cpp with flash attention refuses {kind.name}, which packs {kind.block} values, for "
                        f"heads of {width}"
                    )
        return keys.row(layer.kv_heads, layer.key_dim) + values.row(1, widest or layer.kv_heads * layer.value_dim)


USUAL = LlamaCpp()  # as it starts without options
