"""The story generator, its grammar, the tokenizer and the training loop."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from training.architectures import SPECS, Spec, build, waves
from training.card import readme, table
from training.grammar import Grammar, join, parse_template, read
from training.lexicon import GENDER, HELD_NAMES
from training.loop import (
    Settings,
    batch_at,
    held_out_loss,
    length_at,
    level_end,
    noisy,
    positions_at,
    rate_at,
    step_once,
    train,
)
from training.ngram import KneserNey
from training.picture import curve_svg
from training.quality import consistent, grams, known_words, measure, names_stay, recited
from training.records import KINDS, Writer, possible, record_stream
from training.sampling import continue_all, prompts
from training.stories import (
    HELD_NAMES_SPLIT,
    HELD_SPLITS,
    HELD_TEMPLATES,
    NEW_SEEDS,
    TRAIN,
    build_grammar,
    cast,
    sentences,
    write_story,
)
from training.tokens import SEPARATOR, save_tokenizer, stream, train_tokenizer


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small products are slower on many threads than on one, most of all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def grammar():
    return build_grammar()


@pytest.fixture(scope="module")
def tokenizer(grammar):
    return train_tokenizer(grammar, seed=3, stories=200, vocabulary=600)


def _stories(grammar, split, number=40):
    return [write_story(grammar, split, 7, i) for i in range(number)]


def test_stories_depend_on_seed_split_and_number_only(grammar):
    assert write_story(grammar, TRAIN, 7, 5) == write_story(build_grammar(), TRAIN, 7, 5)
    others = [(TRAIN, 8, 5), (TRAIN, 7, 6), (NEW_SEEDS, 7, 5)]
    assert len({write_story(grammar, *which) for which in [(TRAIN, 7, 5), *others]}) == 4


@pytest.mark.slow
@pytest.mark.parametrize("split", [TRAIN, *HELD_SPLITS], ids=lambda split: split.label)
def test_the_grammar_parses_all_that_it_writes(grammar, split):
    for story in _stories(grammar, split):
        found = sentences(story)
        assert " ".join(found) == story.replace("\n", " ")
        assert all(grammar.parse(sentence) is not None for sentence in found)


def test_shuffled_words_do_not_parse(grammar):
    rng = random.Random(1)
    found = [s for story in _stories(grammar, TRAIN, 10) for s in sentences(story)]
    shuffled = [_shuffle(sentence, rng) for sentence in found]
    assert sum(grammar.parse(sentence) is not None for sentence in shuffled) <= len(shuffled) // 50


def _shuffle(sentence, rng):
    words = list(read(sentence).words[:-1])
    rng.shuffle(words)
    return join((*words, "."))


@pytest.mark.parametrize(
    "sentence",
    [
        "Lilly walked slowly to the forest",
        "lilly walked slowly to the forest.",
        "Lilly walked slowly to forest.",
        "Lilly  walked slowly to the forest.",
        "Lilly walked slowly to the forest .",
        "Lilly walked slowly the forest to.",
        "Lilly flew slowly to the forest.",
        "Once there was a orange fox named Lilly.",
        "Milo loved baking bread with her mother.",
        '"I feel so sad, said Lilly.',
        "",
    ],
)
def test_corrupted_sentences_do_not_parse(grammar, sentence):
    assert grammar.parse("Lilly walked slowly to the forest.") is not None
    assert grammar.parse(sentence) is None


def test_parsing_gives_the_features(grammar):
    found = grammar.parse("There was once a shy fox named Milo who loved telling stories.")
    assert found == {"A.name": "Milo", "A.g": "m", "A.kind": "fox", "A.adj": "shy"}


def test_brackets_must_match():
    for text in ("(a|b", "a|b)", "a|b"):
        with pytest.raises(ValueError, match="brackets"):
            parse_template(text)


@pytest.mark.slow
def test_held_out_names_never_stand_in_the_training_text(grammar):
    text = " ".join(_stories(grammar, TRAIN, 300) + _stories(grammar, HELD_TEMPLATES))
    assert not HELD_NAMES & set(text.replace(".", " ").replace(",", " ").split())
    held = " ".join(_stories(grammar, HELD_NAMES_SPLIT, 5))
    assert any(name in held for name in HELD_NAMES)


def test_every_letter_and_every_ending_of_a_held_out_name_occurs_in_training():
    seen = {name for name in GENDER if name not in HELD_NAMES}
    assert len(seen) > 800 and 0.1 < len(HELD_NAMES) / len(GENDER) < 0.15
    for part in (slice(1), slice(1, None)):
        assert {name[part] for name in HELD_NAMES} <= {name[part] for name in seen}


def test_no_name_is_a_word_of_the_stories(grammar):
    words = grammar.vocabulary() - GENDER.keys()
    assert len(words) > 700 and not {name.lower() for name in GENDER} & words


@pytest.mark.parametrize("split", [TRAIN, *HELD_SPLITS], ids=lambda split: split.label)
def test_the_two_characters_can_be_told_apart(grammar, split):
    rng = random.Random(1)
    for bound in (cast(grammar, split, rng) for _ in range(60)):
        assert {bound["A.g"], bound["B.g"]} == {"f", "m"}
        assert bound["A.name"][0] != bound["B.name"][0] and bound["A.kind"] != bound["B.kind"]
        assert (bound["A.name"] in HELD_NAMES) == (bound["B.name"] in HELD_NAMES) == split.held_names


@pytest.mark.slow
def test_held_out_templates_never_stand_in_the_training_text(grammar):
    assert not {t for g in grammar.train.values() for t in g} & {t for g in grammar.held.values() for t in g}
    seen = Grammar(grammar._lexicon, grammar._kinds, {})
    seen._all = tuple(t for group in grammar.train.values() for t in group)
    shares = [_parsed(seen, _stories(grammar, split, 60)) for split in (TRAIN, HELD_TEMPLATES)]
    assert shares[0] == 1.0 and shares[1] < 0.7


def _parsed(grammar, stories):
    done = [grammar.parse(sentence) is not None for story in stories for sentence in sentences(story)]
    return sum(done) / len(done)


def test_sentences_end_outside_of_quotation_marks():
    text = '"Where is it?" asked Milo. Lilly cried.\n"Oh no!" cried Milo. And then'
    assert sentences(text) == ['"Where is it?" asked Milo.', "Lilly cried.", '"Oh no!" cried Milo.']


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["Lilly ran.", "na\u00efve caf\u00e9", "\u4f60\u597d", "\U0001f388\u200d", "\x00\t\r\n  ", "a" * 500],
)
def test_the_tokenizer_keeps_any_text(tokenizer, tmp_path, text):
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    save_tokenizer(tokenizer, tmp_path, 64)
    loaded = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    assert loaded.decode(loaded(text)["input_ids"]) == text
    assert loaded(text)["input_ids"] == tokenizer.encode(text).ids


def test_a_token_is_a_sub_word(grammar, tokenizer):
    story = write_story(grammar, TRAIN, 3, 1)
    pieces = [tokenizer.id_to_token(i) for i in tokenizer.encode(story).ids]
    assert len(story.split()) < len(pieces) < len(story) / 2
    assert tokenizer.token_to_id(SEPARATOR) == 0


@pytest.mark.slow
def test_a_stream_begins_each_story_with_the_separator(grammar, tokenizer):
    ids = stream(grammar, tokenizer, TRAIN, 3, 2000)
    assert ids.dtype == np.uint16 and len(ids) == 2000 and ids[0] == 0
    first = tokenizer.decode(ids[1 : np.flatnonzero(ids == 0)[1]].tolist())
    assert first == write_story(grammar, TRAIN, 3, 0)


@pytest.mark.slow
def test_generated_stories_keep_their_characters(grammar):
    stories = _stories(grammar, HELD_NAMES_SPLIT, 20)
    starts = [" ".join(sentences(story)[:2]) for story in stories]
    rests = [story[len(start) :] for story, start in zip(stories, starts, strict=True)]
    found = measure(grammar, starts, rests, grams(stories[:10]))
    assert (found.parsed, found.named, found.consistent) == (1.0, 1.0, 1.0)
    assert 0.4 < found.recited < 0.8


@pytest.mark.parametrize(
    ("continuation", "expected"),
    [
        (" Lilly felt very sad.", True),
        (" Milo felt very sad.", False),
        (" Lillo felt very sad.", False),
        (" She was sad and could not smile.", True),
        (" He was sad and could not smile.", False),
        (" The duck felt very sad.", False),
        (" The fox felt very sad.", True),
        (" Lilly met a shy duck called Milo. Milo felt very sad.", True),
        (" Lilly met a shy duck called Lilly.", False),
        (" Lilly met a shy fox called Lilly.", False),
        (" Lilly and Lilly were both happy.", False),
        (" The end.<|endoftext|>Lilly felt very sad.", False),
    ],
)
def test_names_stay_the_same(grammar, continuation, expected):
    prompt = "Once there was a brave fox named Lilly."
    assert consistent(grammar, prompt, continuation) is expected
    assert names_stay(grammar, prompt, continuation) is (expected or continuation.startswith((" He ", " The duck ")))


def test_recital_counts_runs_of_eight_words():
    text = "one two three four five six seven eight nine"
    assert len(grams([text])) == 2
    assert recited(grams([text.replace(" two", ", Two")]), grams([text])) == 1.0
    assert recited(grams(["zero " + text]), grams([text])) == pytest.approx(2 / 3)
    assert len(grams([text[:20] + SEPARATOR + text[20:]])) == 0


def test_known_words(grammar):
    assert known_words(grammar, "Lilly went home") == 1.0
    assert known_words(grammar, "Lilly xqz home bbb") == 0.5


def test_the_ngram_model_is_a_distribution():
    tokens = np.random.default_rng(1).integers(0, 5, 400)
    model = KneserNey(tokens, base=5, order=3)
    chances = [np.exp(-model.loss(np.array([2, 4, last]))) for last in range(5)]
    assert sum(chances) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="too many"):
        KneserNey(tokens, base=2**16, order=5)


SPEC = Spec("tiny", "a tiny model", 64, lambda _: None, True, ((0.5, 32), (0.5, 64)), 6)
SETTINGS = Settings(steps=6, batch_tokens=128, curve_length=32, warmup=2, evaluate_every=2, bf16=False)


def _tiny(seed=1):
    torch.manual_seed(seed)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=600,
            n_positions=64,
            n_embd=16,
            n_layer=2,
            n_head=2,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


@pytest.mark.slow
def test_an_interrupted_run_ends_with_the_same_weights(grammar, tokenizer, tmp_path):
    tokens, held = (stream(grammar, tokenizer, split, 3, 1500) for split in (TRAIN, NEW_SEEDS))
    settings = replace(SETTINGS, bf16=True)
    whole, parts, last = _tiny(), _tiny(), _tiny(seed=2)
    state = train(whole, SPEC, settings, tokens, held, tmp_path / "whole.pt")
    train(parts, SPEC, settings, tokens, held, tmp_path / "parts.pt", stop_at=3)
    resumed = train(last, SPEC, settings, tokens, held, tmp_path / "parts.pt")
    assert resumed.curve == state.curve and resumed.step == 6
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), last.parameters(), strict=True))


@pytest.mark.slow
def test_training_lowers_the_loss(grammar, tokenizer, tmp_path):
    tokens = stream(grammar, tokenizer, TRAIN, 3, 8000)
    model = _tiny()
    before = held_out_loss(model, tokens[:1000], 32, bf16=False)
    train(model, SPEC, replace(SETTINGS, steps=40, rate=1e-2), tokens, tokens[:1000], tmp_path / "run.pt")
    assert held_out_loss(model, tokens[:1000], 32, bf16=False) < before - 0.5


def test_the_schedule():
    assert [length_at(step, SETTINGS, SPEC) for step in range(6)] == [32, 32, 32, 64, 64, 64]
    rates = [rate_at(step, SETTINGS) for step in range(6)]
    assert level_end(SETTINGS) == 4 and rates[0] == SETTINGS.rate / 2
    assert rates[1:5] == [SETTINGS.rate] * 4 and rates[5] < SETTINGS.rate
    longer = replace(SETTINGS, steps=1000)
    falling = [rate_at(step, longer) for step in range(level_end(longer), 1000)]
    assert falling == sorted(falling, reverse=True)
    assert falling[-1] == pytest.approx(SETTINGS.floor * SETTINGS.rate, rel=0.01)
    assert positions_at(4, 2, 64, SETTINGS, SPEC)[:, 0].tolist() == [0, 0]
    starts = [positions_at(step, 1, 32, SETTINGS, SPEC)[0, 0].item() for step in range(300)]
    assert starts[:3] == [0, 0, 0] and max(starts) == 32


def test_noise_replaces_a_share_of_the_inputs_and_no_separator():
    inputs = torch.arange(20_000).view(10, 2000) % 500
    found = noisy(inputs, 3, replace(SETTINGS, noise=0.1))
    assert 0.09 < (found != inputs).float().mean() < 0.11
    assert torch.equal(found == 0, inputs == 0)
    assert torch.equal(found, noisy(inputs, 3, replace(SETTINGS, noise=0.1)))
    assert not torch.equal(found, noisy(inputs, 4, replace(SETTINGS, noise=0.1)))
    assert torch.equal(noisy(inputs, 3, replace(SETTINGS, noise=0.0)), inputs)


def test_noise_comes_only_while_the_learning_rate_falls():
    tokens = np.arange(1, 2001, dtype=np.uint16) % 600
    losses = [
        [step_once(_tiny(), [], tokens, step, replace(SETTINGS, noise=noise), SPEC) for noise in (0.0, 0.5)]
        for step in (level_end(SETTINGS) - 1, level_end(SETTINGS))
    ]
    assert losses[0][0] == losses[0][1] and losses[1][0] != losses[1][1]


@torch.no_grad()
def test_the_first_head_begins_by_looking_at_the_token_before():
    model = build(SPECS["mini-gpt2"], 300, 1).eval()
    model.set_attn_implementation("eager")
    ids = torch.randint(1, 300, (1, 1024), generator=torch.Generator().manual_seed(1))
    seen = model(ids, output_attentions=True).attentions[0][0]
    before = seen.diagonal(-1, 1, 2).mean(1)
    assert before[0] > 0.5 > 10 * before[1:].max()


def test_positions_begin_as_waves():
    start = waves(64, 32)
    assert start.shape == (64, 32) and start.abs().max() <= 1
    near, far = (start[:-shift] * start[shift:] for shift in (1, 16))
    assert near.sum(1).min() > far.sum(1).max()


@pytest.mark.parametrize("name", sorted(SPECS))
def test_attention_begins_as_a_copy_of_what_it_looks_at(name):
    model = build(SPECS[name], 300, 1)
    assert torch.allclose(_attended(model, torch.eye(128)), torch.eye(128), atol=1e-4)


def _attended(model, inputs):
    """What the first layer's attention makes of each input when that is all there is to look at."""
    if hasattr(model, "transformer"):
        found = model.transformer.h[0].attn(inputs[:, None])[0]
    else:
        turns = model.model.rotary_emb(inputs[:, None], torch.zeros(128, 1, dtype=torch.long))
        found = model.model.layers[0].self_attn(inputs[:, None], turns, None)[0]
    return found[:, 0].detach()


def test_batches_follow_the_stream():
    tokens = np.arange(1000, dtype=np.uint16)
    inputs, targets = batch_at(tokens, 2, 32, SETTINGS)
    assert inputs.flatten().tolist() == list(range(256, 384))
    assert torch.equal(targets, inputs + 1)
    assert batch_at(tokens, 1, 256, SETTINGS)[0].tolist() == [list(range(128, 384))]


def test_records_state_what_they_ask_for(grammar, tokenizer):
    writer = Writer(grammar, tokenizer, HELD_NAMES_SPLIT, 3, stories=10)
    ids, asked = writer.record(random.Random(1), 400, 5)
    assert len(ids) == 400 and ids[0] == 0 and len(asked) == 5
    for question in asked:
        where = question.at - question.distance
        assert ids[where : where + len(question.answer)] == question.answer, "so far back the fact names it"
        begun, answer = tokenizer.decode(ids[: question.at]), tokenizer.decode(question.answer)
        thing = begun.rpartition("\n")[2]
        assert f" {thing}{answer}{KINDS[question.kind].end}" in begun
        assert answer.strip() in possible(held=True)[question.kind]


def test_a_stream_of_records_marks_the_answers_and_keeps_to_the_stages(grammar, tokenizer):
    writer = Writer(grammar, tokenizer, TRAIN, 3, stories=10)
    found = record_stream(writer, "x", ((0.5, 128), (0.5, 256)), 2048)
    starts = np.flatnonzero(found.ids == 0)
    assert starts.tolist() == [*range(0, 1024, 128), *range(1024, 2304, 256)]
    assert 0 < found.answers.mean() < 0.2 and not found.answers[starts].any()
    losses = [
        step_once(_tiny(), [], found.ids, 0, replace(SETTINGS, emphasis=emphasis), SPEC, found.answers)
        for emphasis in (0.0, 1.0)
    ]
    assert losses[0] == losses[1], "the emphasis is not part of what is reported"


def test_continuations_do_not_depend_on_the_padding(grammar, tokenizer):
    model = _tiny().eval()
    texts = prompts(grammar, NEW_SEEDS, 1, 2)
    texts[0] = texts[0][:30]
    both = continue_all(model, tokenizer, texts, 5, 0.0, 1)
    assert both == [continue_all(model, tokenizer, [text], 5, 0.0, 1)[0] for text in texts]
    assert continue_all(model, tokenizer, texts, 5, 1.0, 1) == continue_all(model, tokenizer, texts, 5, 1.0, 1)


def test_the_picture_and_the_tables():
    svg = curve_svg([[10, 2.0, 2.5], [20, 1.0, 1.5]], 100, 1.7)
    assert svg.startswith("<svg") and svg.count("<polyline") == 2 and "2,000 tokens" in svg
    assert table(("a", "b"), [(1000, 0.5)]).splitlines()[-1] == "| 1,000 | 0.500 |"
    with pytest.raises(KeyError):
        readme({})
