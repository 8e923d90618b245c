"""Questions for the reader to answer first, each with an answer and the measured evidence. Standard library only.

The text of an answer holds for any model and device, so it contains no measured figures; `evidence` adds those.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kvviz.experiments import evidence as seen
from kvviz.experiments.evidence import AtHand

Shown = Callable[[AtHand], str | None]


@dataclass(frozen=True)
class Question:
    """A question, its pages, its answer, the evidence from figures, and what to run if there are no figures."""

    id: str
    pages: tuple[str, ...]
    question: str
    text: str
    shown: Shown | None = None
    run: str = ""

    def answer(self, at_hand: AtHand) -> str:
        """Write the answer as Markdown: the general text, then the evidence measured here or how to get it."""
        found = self.shown(at_hand) if self.shown else None
        return "\n\n".join(part for part in (self.text, found or self.run) if part)


def on_page(page: str) -> tuple[Question, ...]:
    """List the questions of a page in order."""
    return tuple(question for question in QUESTIONS if page in question.pages)


RUN = "To see it, press Run above: when all is measured, its own figures stand here."

QUESTIONS = (
    Question(
        "square",
        ("live",),
        "Why is a step O(T²) without a cache, and O(T) with one?",
        "Without a cache all T tokens so far are fed again to get one more, and attention compares each of T queries "
        "with the T keys: T × T. With a cache there is one query, and it meets T keys: T.\n\n"
        "That shorthand is about attention's own term. In whole, a layer of GPT-2's shape and width d costs about "
        "**24 T d² + 4 T² d** operations without a cache, and a cached step about **24 d² + 4 T d**. The first term is "
        "the weight matrices, through which every token that is fed has to go; the second is attention. The square "
        "wins only past T of about 6 d: for GPT-2 (d = 768) past 4,608 tokens, and its window ends at 1,024. Below "
        "that, an uncached curve is nearly a straight line, and what the cache saves is mostly the first term: T "
        "tokens through the matrices in place of 1.",
        seen.steps_apart,
        RUN,
    ),
    Question(
        "ttft",
        ("live",),
        "What does TTFT measure, and why does it stand apart from ms/token?",
        "TTFT, the time to first token, is how long one waits until anything appears: here the prefill, one forward "
        "over the whole prompt; in a service also the time in its queue. The time per token is the pace after that. "
        "They depend on different things: TTFT grows with the prompt and a cache can't shorten it, since every token "
        "has to be read once; the pace is what the cache changes. One mean over both would hide each: a long wait "
        "before a quick stream, or no wait before a slow one.",
        seen.waits,
        RUN,
    ),
    Question(
        "parting",
        ("live",),
        "Without a cache, why are TTFT and ms/token nearly equal at first, and do they stay so?",
        "Without a cache every step is a prefill of all tokens so far. After a prompt of P tokens the first decode "
        "step reads P + 1, hardly more than the prefill did, so it takes hardly longer. But after N new tokens a step "
        "reads P + N, and they part: when N is as large as P the work has doubled. The clock may follow late, because "
        "a small step mostly starts operations and reads weights, which takes as long for few tokens as for more. "
        "With a cache they part the other way: the first decode step already reads 1 token in place of P.",
        seen.parting,
        RUN,
    ),
    Question(
        "total",
        ("compare",),
        "The time of an uncached token climbs like a straight line. Why is the total quadratic?",
        "Because a total adds up all the steps. For a prompt of P tokens and N new ones, the forwards read "
        "P + (P + 1) + … + (P + N − 1) = N P + N (N − 1) / 2 tokens: 1 + 2 + … + N is about half of N². So once N is "
        "well above P, twice the tokens take about four times the time, though each step is only a little longer than "
        "the one before. With a cache the same run reads P + N − 1 tokens, and its time so far is nearly a straight "
        "line (its look over the cached keys adds up to a square too, with a factor so small that it shows only in "
        "long contexts).",
        seen.summed,
        "To see it, pick the runs of one comparison above, without a cache and with one, and look at the time so far.",
    ),
    Question(
        "metrics",
        ("live", "sweep"),
        "Which of tokens/s, ms/token, TTFT and peak memory does the cache change, and how?",
        "Along a growing sequence:\n\n"
        "- **ms/token**: climbs without a cache; nearly flat with one, since only the look over the cached keys "
        "grows.\n"
        "- **tokens/s**: its mirror image; falls without a cache, holds with one.\n"
        "- **TTFT**: nearly the same in both. It is one forward over the prompt, which a cache can't spare; it grows "
        "with the prompt, not with the new tokens.\n"
        "- **Peak memory**: two things pull in opposite directions. A cache keeps bytes for every token, but a step "
        "with it needs room for one token only; without it nothing is kept, but each step needs room for the "
        "intermediate results of all tokens at once. So the peak may be lower with a cache, although it stores more.",
        seen.four_metrics,
        RUN,
    ),
    Question(
        "batching",
        ("sweep",),
        "How does the cache enable continuous batching?",
        "Between two steps, all that the model needs of a sequence lies in its cache. So a step can take one token of "
        "each of many sequences, however long each is: the weights are read once for all of them, and each query "
        "looks over its own cache. After any step a finished sequence can leave and free its rows, and a new one can "
        "join after its prefill; nobody waits for the longest. Without a cache a step would have to feed every "
        "sequence whole: inputs of unequal, growing lengths, and so much arithmetic already that there is little left "
        "to share. The price is memory: every sequence brings its cache, and when they fill the device, no more fit.",
        seen.shared_step,
        "To see the part that can be measured here, one step shared by many sequences, run the experiment "
        "*Batch: 1 to 16 sequences* above. (These sequences start and end together; a serving engine lets them come "
        "and go.)",
    ),
    Question(
        "quantisation",
        ("memory",),
        "Why does quantising the weights not shrink the KV cache?",
        "Because the cache holds no weights. Keys and values are results: what the weights made of these tokens. "
        "Weights in 4 bits are multiplied with activations in 16 bits, and what comes out, K and V, is stored in the "
        "cache's own dtype. The formula above has the bytes of a cached number in it, and nothing of the weights. "
        "What shrinks the cache: a smaller dtype of its own, fewer KV heads, windows, latent rows. What quantised "
        "weights do give is room beside the cache, and fewer bytes to read in each step.",
        seen.weighed,
        "To see it, pick a model whose parameters are known above.",
    ),
    Question(
        "why-not-q",
        ("anatomy",),
        "Why K and V, but not Q?",
        "Ask who will want it again. Every later token looks back and asks this one for its key (how well do we "
        "match?) and its value (what do you hand over?), so both are used in every step to come. Its query is used "
        "once: by itself, in the step in which it enters. A stored Q would never be read. Look at the scores in the "
        "walk above: in prefill Q has a row for each token of the prompt, in a decode step a single row, while K has a "
        "row for every token so far.",
    ),
    Question(
        "encoder",
        ("anatomy",),
        "Would it work for an encoder?",
        "Not as it does here. It works because a causal layer never looks ahead: a token's row is finished once "
        "computed. In an encoder every token sees every other, so one more token changes what all the others are after "
        "the first layer, and with it their keys and values: no row could be kept. Nor is there a past to keep: the "
        "whole input is there at once and is read in one forward. One could make a past with a causal mask, over "
        "tokens or over blocks as streaming speech models do; where no row looks ahead any more, caching works again. "
        "And beside a decoder an encoder does get a cache: its output does not change while the decoder writes, so the "
        "keys and values of cross-attention are computed once, kept, and never grow.",
    ),
    Question(
        "training",
        ("anatomy",),
        "Would it work in training?",
        "There is nothing for it to save. In training the whole text is known, and one forward with a causal mask "
        "predicts every token at once; within it, each key and value is computed once already. Nor could they be kept "
        "for the next step of training: the weights have changed by then, and with them every key and value. And the "
        "backward pass needs the intermediate results of all tokens anyway. Where training has to write text, to be "
        "judged or rewarded, that is inference: weights stand still, and a cache is used and thrown away after it.",
    ),
)
