"""`memory()`: what the KV caches of models take, as a table in a notebook. No torch, no JavaScript."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvviz.base.errors import KvvizError
from kvviz.base.words import human
from kvviz.charts import palette
from kvviz.memory.calculator import MOST_MODELS, Answer, Asked, answers, pack, slim
from kvviz.memory.engine_views import VIEWS
from kvviz.memory.explain import terms
from kvviz.memory.formula import Memory
from kvviz.memory.given import read_given
from kvviz.memory.levers import fraction, largest_lever, levers
from kvviz.notebook.table import html_table

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


@dataclass(frozen=True)
class CacheMemory:
    """The caches of one to six models in one case; a notebook shows them as a table."""

    asked: Asked
    answers: tuple[Answer, ...]

    @property
    def total_bytes(self) -> int:
        """Bytes of the first model's cache."""
        return _of(self.answers[0]).total_bytes

    @property
    def documents(self) -> list[dict[str, object]]:
        """For each model what `kvviz calc --json` prints: bytes in all, per token and by layer."""
        return [_of(answer).to_dict() for answer in self.answers]

    def __repr__(self) -> str:
        """Say in a line how much each model's cache takes."""
        sizes = ", ".join(f"{answer.title} {human(_of(answer).total_bytes)}" for answer in self.answers)
        return f"<KV cache of {self._case}: {sizes}>"

    @property
    def _case(self) -> str:
        asked = self.asked
        each = f" on each of {asked.tensor_parallel} devices" if asked.tensor_parallel > 1 else ""
        return f"{asked.tokens:,} tokens × {asked.batch:,} in {asked.dtype}{each}"

    def _repr_html_(self) -> str:
        """Draw the table in the colours of the page around it, be that light or dark."""
        first, view = self.answers[0], VIEWS[self.asked.view]
        memory, most = _of(first), max(_of(answer).total_bytes for answer in self.answers)
        said = [
            f"KV cache of <b>{escape(first.title)}</b>, {self._case}: {memory.total_bytes:,} B; each further token "
            f"adds {human(memory.per_token_bytes)}."
        ]
        if first.spec and (lever := largest_lever(first.spec, memory)):
            said.append(f"What would save most: {escape(lever.name)} leaves {fraction(lever.factor)} of the bytes.")
        notes = [note for answer in self.answers for note in _of(answer).notes]
        said += [
            escape(note) for note in dict.fromkeys([*notes, f"{f'{view.title} {view.version}'.strip()}: {view.rule}"])
        ]
        heads = ("model", "layers", "", "cache", "one more token", "weights", "because of" * bool(self.answers[1:]))
        table = html_table(heads, (_cells(answer, first, most) for answer in self.answers))
        lines = "".join(f'<div style="margin:.2em 0">{line}</div>' for line in said)
        return (
            f'<div style="color:inherit;line-height:1.45"><div style="font-size:1.7em;font-weight:600">'
            f"{human(memory.total_bytes)}</div>{lines}{table}</div>"
        )


def _of(answer: Answer) -> Memory:
    """The memory of an answer that `memory` has let through."""
    assert answer.memory is not None
    return answer.memory


def _cells(answer: Answer, first: Answer, most: int) -> tuple[str, ...]:
    """One model: the kinds of its layers, a bar of its bytes in their colours, and its figures."""
    memory, spec = _of(answer), answer.spec
    same = terms(spec, memory) if spec else ()
    shares = ((term, 100 * term.nbytes / most) for term in same if term.nbytes and most)
    bar = "".join(
        f'<span title="{term.count} {term.row.kind}: {human(term.nbytes)}" style="display:inline-block;height:.9em;'
        f'width:{share:.2f}%;background:{palette.KINDS[term.row.kind]}"></span>'
        for term, share in shares
    )
    why = levers(first.spec, _of(first), spec, memory) if spec and first.spec else ()
    return (
        f"<b>{escape(answer.title)}</b>",
        ", ".join(f"{term.count} {term.row.kind}" for term in same),
        f'<div style="width:12em;white-space:nowrap;font-size:1em">{bar}</div>',
        human(memory.total_bytes).replace(" ", "&nbsp;"),
        f"{memory.per_token_bytes:,} B",
        human(memory.weights_bytes).replace(" ", "&nbsp;") if memory.weights_bytes else "unknown",
        escape(", ".join(map(str, why))),
    )


def memory(
    *models: "str | Path | Mapping[str, object] | PreTrainedConfig | PreTrainedModel",
    tokens: int = 8192,
    batch: int = 1,
    dtype: str | None = None,
    view: str | None = None,
    **case: Any,
) -> CacheMemory:
    """Work out what the KV caches of one to six models take after `tokens` tokens of each of `batch` sequences.

    A model is whatever names or describes one: a catalog id, a Hugging Face id or the address of its page, the path or
    the text of a config.json, a GGUF file here or on the Hub (of which the header is read), a dict, or a config or
    model of transformers. Without `dtype` and `view` it is bfloat16 and what the architecture needs; float16 and
    llama.cpp if the first model is a GGUF file. `case`: the other inputs of the calculator, such as tensor_parallel=2,
    beams=4 or swa_full=True (kvviz/memory/calculator.py, `Asked`). Raises KvvizError, one sentence, for what can't be
    read or worked out.
    """
    keys = tuple(dict.fromkeys(key for model in models for key in _keys(model)))
    if not 1 <= len(keys) <= MOST_MODELS:
        raise KvvizError(f"memory() takes one to {MOST_MODELS} models, not {len(keys)}")
    asked = replace(Asked(models=keys, tokens=tokens, batch=batch), **case)
    found = answers(asked)
    usual = ("float16", "llama.cpp") if found[0].config.get("gguf") else ("bfloat16", "architecture")
    asked = replace(asked, dtype=dtype or usual[0], view=view or usual[1])
    found = answers(asked)
    for answer in found:
        if answer.problem:
            raise KvvizError(f"{answer.title}: {answer.problem}")
    return CacheMemory(asked, found)


def _keys(model: Any) -> list[str]:
    """The keys by which the calculator knows the models that are given."""
    if isinstance(model, str | Path):
        given = read_given(str(model))
        if given[0].log:
            raise KvvizError("these are lines of a log; memory() takes models, and the memory page judges a log")
        return [each.model or pack(slim(each.config or {})) for each in given]
    described = getattr(model, "config", model)  # a model has its config
    config = described if isinstance(described, Mapping) else getattr(described, "to_dict", dict)()
    if not config:
        raise KvvizError(f"memory() takes names, configs and models, not {type(model).__name__}")
    return [pack(slim(config))]
