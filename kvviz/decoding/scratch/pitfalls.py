"""The mistakes of a first KV cache as a table: what to look at, the line at fault, and what it should be.

Standard library only, so that a page can list them; the loops themselves are in `mistakes`.
"""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kvviz.base.errors import KvvizError

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Pitfall:
    """A mistake and what it is held against: `loop` and `right` are functions of mistakes.py, `right` the proper one.

    Where it `shows` on the clock, they are functions of stopwatch.py. `says` is what to look at; `wrong` and `mend` are
    lines of code; `parts` are classes that the loop needs. `shows` is where its trouble is seen: in the `logits`, the
    `memory`, the `work` done for nothing, or on the `clock`.
    """

    name: str
    title: str
    says: str
    loop: str
    wrong: str
    mend: str
    right: str = "right"
    parts: tuple[str, ...] = ()
    shows: str = "logits"

    @property
    def source(self) -> str:
        """The loop as it is written, with the classes that it needs."""
        written = _definitions("stopwatch.py" if self.shows == "clock" else "mistakes.py")
        return "\n\n\n".join(written[name] for name in (*self.parts, self.loop))


@cache
def _definitions(file: str) -> dict[str, str]:
    """The text of every function and class of a file beside this one."""
    text = (HERE / file).read_text(encoding="utf-8")
    found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return {node.name: ast.get_source_segment(text, node) or "" for node in found}


_ROWS = (
    Pitfall(
        "positions",
        "Positions stand still",
        "Every decoded token is told that it stands at position 0. The prefill is right, so the first token is; from "
        "the second on, the model has lost the order of what it writes.",
        "positions_stand_still",
        wrong="at = torch.arange(new.shape[1], device=new.device)",
        mend="at = caches[0].seen + torch.arange(new.shape[1], device=new.device)",
    ),
    Pitfall(
        "square-mask",
        "A square mask",
        "The mask is (T, T) where the scores are (T, T_total). With one new token it is 1 x 1 and stretches over "
        "anything; with a first prefill T equals T_total. In the second piece of a chunked prefill it doesn't fit.",
        "square_mask",
        wrong="return torch.ones(T, T, dtype=torch.bool, device=device).tril()",
        mend="return torch.ones(T, T_total, dtype=torch.bool, device=device).tril(diagonal=T_total - T)",
        right="right_in_chunks",
    ),
    Pitfall(
        "mask-offset",
        "A mask without its offset",
        "The shape fits, so nothing crashes. But the new tokens are the last T of T_total, and this mask treats them "
        "as the first: in the second piece of a chunked prefill, a token can't even see itself.",
        "mask_without_offset",
        wrong="return torch.ones(T, T_total, dtype=torch.bool, device=device).tril()",
        mend="return torch.ones(T, T_total, dtype=torch.bool, device=device).tril(diagonal=T_total - T)",
        right="right_in_chunks",
    ),
    Pitfall(
        "twice",
        "Appended twice",
        "Each new token's keys and values go into the cache two times. It counts double in the softmax, and the "
        "positions run ahead: look at the third number of the shape, which grows by two.",
        "appended_twice",
        wrong="return super().append(k, v)",
        mend="return self.k, self.v",
        parts=("TwiceCache",),
    ),
    Pitfall(
        "anew",
        "A new cache at every step",
        "The loop makes its cache inside the loop and feeds only the newest token. The model sees one token, at "
        "position 0, and nothing of what came before.",
        "cache_made_anew",
        wrong="caches = model.new_caches()",
        mend="caches = model.new_caches()  # once, before the loop",
    ),
    Pitfall(
        "not-passed-on",
        "The cache is not passed on",
        "A cache is filled at every step and dropped, and the whole sequence is fed again. Every token is right. Look "
        "at the multiply-adds: all the work of no cache at all.",
        "cache_not_passed_on",
        wrong="logits = model(ids, caches)",
        mend="logits = model(new, caches)  # the newest token alone, into caches made before the loop",
        shows="work",
    ),
    Pitfall(
        "stale",
        "Another prompt's cache",
        "The cache still holds an earlier prompt. The new one is read as if it went on from there: the text bears its "
        "traces, and one user could read another's.",
        "stale_cache",
        wrong="model(prompt.flip(1)[:, :OLD_PROMPT], caches)  # an earlier prompt, another one",
        mend="caches = model.new_caches()  # for each prompt its own",
    ),
    Pitfall(
        "gradients",
        "Gradients left on",
        "Without torch.no_grad() every step keeps what a backward pass would need, and the cache holds on to all "
        "steps before. The tokens are right; the memory climbs until there is none.",
        "with_gradients",
        wrong="with torch.enable_grad():",
        mend="with torch.no_grad():",
        shows="memory",
    ),
    Pitfall(
        "one-token-prompt",
        "One token where the prompt belongs",
        "The prefill is treated like a decode step: only the prompt's last token is fed. The model answers a prompt "
        "of one token.",
        "one_token_for_the_prompt",
        wrong="new = prompt[:, -1:]",
        mend="new = prompt",
    ),
    Pitfall(
        "prompt-again",
        "The prompt fed again in decode",
        "The cache is passed on, and the whole sequence is fed on top of it at every step. The cache holds everything "
        "many times over: look how fast it grows, and where the positions have got to.",
        "prompt_fed_again",
        wrong="logits = model(ids, caches)",
        mend="logits = model(new, caches)  # the newest token alone",
    ),
    Pitfall(
        "no-warm-up",
        "No warm-up",
        "The very first forward of a process pays for everything that happens once: libraries that load their code, "
        "memory that is asked for, kernels that are chosen. It is timed here in a new process, as its first work.",
        "without_warm_up",
        wrong="yield from synchronised(model, prompt, steps, sync)",
        mend="list(synchronised(model, prompt, steps, sync))  # the first pass is thrown away",
        right="with_warm_up",
        shows="clock",
    ),
    Pitfall(
        "no-sync",
        "The device is not waited for",
        "A GPU takes its orders and works on while the program goes on. A clock that is read when the call returns has "
        "measured how long it takes to give orders.",
        "not_synchronised",
        wrong="yield time.perf_counter() - start",
        mend="sync()  # before the clock is read, and before it starts",
        right="synchronised",
        shows="clock",
    ),
)
PITFALLS: dict[str, Pitfall] = {row.name: row for row in _ROWS}


def pitfall_named(name: str) -> Pitfall:
    """The row of a mistake. Raises KvvizError listing the names where there is none."""
    if name not in PITFALLS:
        raise KvvizError(f"no mistake {name!r}; they are {', '.join(PITFALLS)}")
    return PITFALLS[name]
