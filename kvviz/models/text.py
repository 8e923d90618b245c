"""Convert between text and tokens with a model's own tokenizer, or by bytes without one. Handles no tensors."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from kvviz.base.errors import KvvizError
from kvviz.models.catalog.rows import HERE

STORY = "Once upon a time there was a little"  # the default prompt, which the bundled models can continue


def book() -> str:
    """Return a text for long prompts: two chapters of Alice's Adventures in Wonderland (1865, in the public domain)."""
    return (HERE / "alice.txt").read_text(encoding="utf-8")


class Codec(Protocol):
    """Converts text to token ids and back. `note` is a sentence about it for a page, or empty."""

    note: str

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class ByteCodec:
    """Uses the bytes of the text as tokens; an id that is no printable character shows as its number."""

    note = "This model has no tokenizer here, so each byte of the prompt is a token and the answer is noise."

    def __init__(self, vocab_size: int | None, why: str = "") -> None:
        self._vocab_size = vocab_size or 256
        self.note = why + type(self).note

    def encode(self, text: str) -> list[int]:
        try:
            ids = list(text.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise KvvizError("the prompt is no text: it has bytes that are not UTF-8, or half a character") from error
        if max(ids) >= self._vocab_size:
            raise KvvizError(
                f"the prompt has a byte of value {max(ids)}, but this model knows {self._vocab_size} tokens: "
                "write it with plain characters"
            )
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(i) if 32 <= i < 127 or i == 10 else f"⟨{i}⟩" for i in ids)


class Tokenizer(Protocol):
    """The methods of a Hugging Face tokenizer that kvviz uses."""

    def __call__(self, text: str, /) -> Mapping[str, Sequence[int]]: ...

    def decode(self, ids: list[int], /, *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> str: ...


class TokenizerCodec:
    """Wraps a Hugging Face tokenizer."""

    note = ""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        ids = self._tokenizer(text)["input_ids"]
        if not ids:
            raise KvvizError("the prompt holds nothing that this model's tokenizer reads")
        return list(ids)

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)


class TextStream:
    """Yields the text that each token id adds; a character made of several tokens comes with its last token."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._ids: list[int] = []
        self._start = 0  # start of the window that is decoded again
        self._read = 0  # end of the part of the window whose text is out

    def push(self, token_id: int) -> str:
        """Return the text that this token adds; empty while a character is incomplete."""
        self._ids.append(token_id)
        before = self._codec.decode(self._ids[self._start : self._read])
        text = self._codec.decode(self._ids[self._start :])
        if text.endswith("�") and len(self._ids) - self._read < 4:
            return ""
        self._start, self._read = self._read, len(self._ids)
        return text[len(before) :]


class Speller:
    """Gives the text of each token of an answer, and decodes each id only once: it is called while a run goes on."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._known: dict[int, str] = {}

    def __call__(self, ids: Sequence[int]) -> list[str]:
        pieces = [self._known.get(i) or self._piece(i) for i in ids]
        if any("�" in piece for piece in pieces):  # part of a character: what it is depends on its neighbours
            stream = TextStream(self._codec)
            return [stream.push(i) for i in ids]
        return pieces

    def _piece(self, i: int) -> str:
        """The text of a token that is not the first: some tokenizers drop the space of that one."""
        self._known[i] = self._codec.decode([i, i])[len(self._codec.decode([i])) :]
        return self._known[i]
