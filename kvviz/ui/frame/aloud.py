"""How to say each page out loud: the state that changes, the axis it changes on, the trade-off."""

from dataclasses import dataclass

import streamlit as st


@dataclass(frozen=True)
class Aloud:
    """One page in three sentences, as one would say them in an interview."""

    state: str
    axis: str
    trade_off: str


ALOUD = {
    "live": Aloud(
        state="The state is the KV cache: prefill fills it with one key and one value per prompt token, in every layer "
        "and KV head, and each decode step appends one more.",
        axis="It grows on the token axis, the third of [batch, KV heads, tokens, head size], by one for each new "
        "token; in a layer with a window only until the window is full.",
        trade_off="It trades memory for work: the tokens stay the same, a step reads one token instead of all of them, "
        "and the keys and values of all of them have to stay in memory.",
    ),
    "compare": Aloud(
        state="What differs between two runs of the same work is what each carries from step to step: nothing, or the "
        "keys and values of every token so far.",
        axis="I line them up on the new tokens: along that axis the work of an uncached step grows while it holds "
        "nothing, and the bytes of a cached run grow while its step stays almost the same.",
        trade_off="How many times as fast is a figure of one prompt length, batch and device, so I say those with it, "
        "and I trust a difference only where it is larger than the spread of the passes.",
    ),
    "sweep": Aloud(
        state="The state is the same cache in every cell of the grid; what varies is how large it becomes.",
        axis="Prompt and new tokens lengthen its token axis, sequences widen its batch axis, and its bytes grow in "
        "proportion to each.",
        trade_off="The longer the sequence, the more repeated work the cache saves and the more memory it takes; on a "
        "small model and a short sequence it saves little, because a step is mostly overhead.",
    ),
    "memory": Aloud(
        state="The state is K and V in every layer: 2 × layers × sequences × tokens × KV heads × head size × bytes of "
        "a number, where all layers attend to everything.",
        axis="In use it grows on two axes, tokens and sequences; layers, KV heads and head size are fixed by the "
        "model, and the bytes of a number by the cache's dtype, not the weights'.",
        trade_off="Fewer KV heads, a window, latent rows or fewer bits make room for longer contexts and more users, "
        "and each may cost some quality or some extra work per step.",
    ),
    "anatomy": Aloud(
        state="In one layer the state is two matrices: K and V, one row per token, written once and read by every "
        "query that comes later.",
        axis="A decode step takes both from T to T + 1 rows on the token axis; Q has T rows in prefill and one row in "
        "decode, and is gone when the step is over.",
        trade_off="By holding two rows per token, a step projects one token and scores one row of keys, where it would "
        "have projected T tokens and scored T × T.",
    ),
    "mistakes": Aloud(
        state="The state is the cache and the position together: both have to move on by exactly the tokens that were "
        "fed.",
        axis="Nearly all mistakes sit on the token axis: a position that stays behind, a mask that ignores the rows "
        "already held, a row too many, or rows of another text.",
        trade_off="A loop without a cache has no state to get wrong; the speed of a cache is paid for with a rule to "
        "keep, so I test the cached loop against the uncached one, and time it only then.",
    ),
    "cost": Aloud(
        state="The state decides what a step has to do: with a cache it reads the weights and the cache to make one "
        "token of each sequence; without one it computes every earlier token again.",
        axis="On the token axis a cached step's work and bytes grow in a straight line, and those of an uncached step "
        "by a straight line and a square, of which the square wins only in long contexts.",
        trade_off="The cache trades arithmetic for memory traffic: a decode step is mostly reading, so sequences share "
        "one reading of the weights in a batch, until their caches fill the memory.",
    ),
    "roofline": Aloud(
        state="The state decides the bytes: a decode step reads every weight and the whole cache for one token of each "
        "sequence, and does about one multiply-add for each number read.",
        axis="A longer prompt moves a prefill to more FLOPs per byte, a larger batch moves a decode step there, and a "
        "longer context hardly moves it, because the cache grows along with the work done on it.",
        trade_off="The cache moves a step from arithmetic to memory traffic; a batch buys some of the arithmetic back, "
        "until the caches of all sequences are more bytes than the weights they share.",
    ),
    "caches": Aloud(
        state="The state is the same in every exact design, keys and values of all tokens so far; designs differ in "
        "where it lies, what is reserved beside it and what has to be moved at a step.",
        axis="All of it grows on the token axis: joining copies every token at each step, a buffer has its slots from "
        "the start, blocks come sixteen tokens at a time, a window keeps its length.",
        trade_off="Memory, copying and exactness are paid for with one another: reserving buys still memory with an "
        "empty tail, blocks buy it back with a table to look up, fewer bits or tokens buy bytes with precision.",
    ),
    "serving": Aloud(
        state="The state is one memory that many sequences share: whose each piece is, how much of it is filled, and "
        "which pieces hold a beginning that somebody else begins with too.",
        axis="It grows on the batch axis as requests come and on the token axis of each of them as it writes; a kept "
        "beginning saves work on the token axis, up to the first token that differs.",
        trade_off="Blocks trade a table to look things up in for room: less than a block is wasted per sequence, so "
        "more run at once; and who lets more in may have to preempt and compute again.",
    ),
}


def say_aloud(page: str) -> None:
    """The foot of a page; nothing on a page that is not for learning."""
    said = ALOUD.get(page)
    if said is None:
        return
    st.divider()
    st.subheader("How to say it out loud", anchor=False)
    parts = {"The state that changes": said.state, "The axis it changes on": said.axis, "The trade-off": said.trade_off}
    for column, (title, sentence) in zip(st.columns(3, gap="medium"), parts.items(), strict=True):
        column.markdown(f"**{title}**  \n{sentence}")
