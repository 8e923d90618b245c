"""Where the weights of a model lie when several cards share it: by widths, by layers, by experts, or as copies."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvviz.base.errors import ConfigError
from kvviz.base.precision import weight_bytes
from kvviz.cost.blocks import Matrix
from kvviz.cost.shape import Shape, read_shape
from kvviz.models.gguf.config import weights_in


@dataclass(frozen=True)
class Weights:
    """The parameters of a model, and which of them are in experts and in the tables of the vocabulary.

    `nbytes` is exact for a GGUF file; otherwise the parameters times the bits of `dtype`. `counted`: the number of
    parameters is the sum of the matrices, without norms and biases, because no catalog and no file states it. `tied`:
    the embeddings and the head are one table. `experts` and `tables` are 0 where the config's work can't be counted
    block by block.
    """

    params: int
    nbytes: int
    dtype: str
    experts: int = 0
    tables: int = 0
    tied: bool = False
    counted: bool = False
    exact: bool = False

    def stored_as(self, dtype: str) -> "Weights":
        """The same parameters in another dtype; the weights of a file are what they are."""
        return self if self.exact else replace(self, nbytes=weight_bytes(self.params, dtype), dtype=dtype)


def read_weights(config: Mapping[str, object], params: int | None, dtype: str) -> Weights:
    """Read the weights of a config's model. Raises ConfigError if nobody states the parameters and none can be counted.

    `params`: what the catalog or the file's header says; None if neither does.
    """
    file, shape = weights_in(config), _shape(config)
    experts = sum(_experts(layer) for layer in shape.layers) if shape else 0
    tables, tied = _tables(shape, config) if shape else 0, _tied(config) in (True, None)
    if file is not None:
        return Weights(file.parameters, file.nbytes, "as in the file", experts, tables, tied, exact=True)
    if params is not None:
        return Weights(params, weight_bytes(params, dtype), dtype, experts, tables, tied)
    if shape is None or not _countable(shape, config):
        raise ConfigError("the number of this model's parameters is not known; give it with --params, in billions")
    blocks = [block for layer in shape.layers for block in layer]
    matrices = sum(block.weights for block in blocks if isinstance(block, Matrix))
    return Weights(
        matrices + tables, weight_bytes(matrices + tables, dtype), dtype, experts, tables, tied, counted=True
    )


def _shape(config: Mapping[str, object]) -> Shape | None:
    try:
        return read_shape(config)
    except ConfigError:
        return None


def _countable(shape: Shape, config: Mapping[str, object]) -> bool:
    """Whether a config's matrices are all its weights: no encoder, no layers that share theirs, no further tables."""
    shares = config.get("model_type") in ("zamba2", "gemma3n_text", "gemma3n", "gemma4_text", "gemma4")
    return not shape.spec.crossing and not shares and _tied(config) is not None


def _tied(config: Mapping[str, object]) -> object:
    text = config.get("text_config")
    return config.get("tie_word_embeddings", text.get("tie_word_embeddings") if isinstance(text, Mapping) else None)


def _experts(layer: tuple[object, ...]) -> int:
    return sum(block.weights for block in layer if isinstance(block, Matrix) and block.copies > 1)


def _tables(shape: Shape, config: Mapping[str, object]) -> int:
    """Parameters of the embeddings and of the head, which are one table if the config ties them."""
    one = (shape.spec.vocab_size or 0) * shape.hidden
    return one if _tied(config) in (True, None) else 2 * one


@dataclass(frozen=True)
class Sharing:
    """How cards share a model: `tensor` cards each layer, `pipeline` stages the layers, `data` copies the requests.

    `experts`: the experts of a layer are spread over all cards of a stage, those of the copies included.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    experts: bool = False

    @property
    def cards(self) -> int:
        """Cards that it takes."""
        return self.tensor * self.pipeline * self.data

    def of_one_card(self, weights: Weights, layers: int) -> int:
        """Bytes of the weights on the card that has most of them: the stage with most layers and a table.

        A tied table lies whole on the first stage, for the embeddings, and on the last, for the head.
        A tensor's rows or columns are divided; norms, which every card has, are too small to be counted.
        """
        per_param = weights.nbytes / max(1, weights.params)
        plain = weights.params - weights.experts - weights.tables
        stage = -(-layers // self.pipeline) / layers if layers else 1.0
        tables = weights.tables if self.pipeline == 1 or weights.tied else weights.tables / 2
        among = self.tensor * (self.data if self.experts else 1)
        return round(per_param * (stage * (plain / self.tensor + weights.experts / among) + tables / self.tensor))

    @property
    def words(self) -> str:
        """The sharing in a plan's words; "" for a single card."""
        named = (("tensor parallel", self.tensor), ("pipeline stages", self.pipeline), ("copies", self.data))
        parts = [f"{name} {count}" for name, count in named if count > 1]
        return ", ".join([*parts, *(["experts spread"] if self.experts else [])])
