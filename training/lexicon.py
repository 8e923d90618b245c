"""The words of the stories: names, kinds of characters, things, places and function words."""

from collections.abc import Mapping

Entries = tuple[tuple[str, Mapping[str, str]], ...]


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# A name is a start plus an end. Training contains every start and every end, but one name in eight is held out.
# There are so many names that a model cannot guess one by frequency; it has to copy.
_STARTS = tuple(consonant + vowel for vowel in "aeiou" for consonant in "BDFGHJKLMNPRSTVWZ")
_GIRL_ENDS = _list("lly nna tta mia via rla")
_BOY_ENDS = _list("lo bbo ndo rro zzo ven")
_UNKIND = frozenset(_list("Titta Putta Tutta Fatta Gonna Wanna Gotta Bully Fully Silly Belly Seven Haven Raven"))


def _names(ends: tuple[str, ...], held: bool) -> tuple[str, ...]:
    numbered = ((start + end, i + 3 * k) for i, start in enumerate(_STARTS) for k, end in enumerate(ends))
    return tuple(name for name, number in numbered if (number % 8 == 7) == held and name not in _UNKIND)


HELD_NAMES = frozenset(_names(_GIRL_ENDS, held=True) + _names(_BOY_ENDS, held=True))
GENDER = dict.fromkeys(_names(_GIRL_ENDS, held=False) + _names(_GIRL_ENDS, held=True), "f") | dict.fromkeys(
    _names(_BOY_ENDS, held=False) + _names(_BOY_ENDS, held=True), "m"
)

ANIMALS = _list(
    "fox rabbit bear mouse duck frog hedgehog squirrel cat dog turtle badger pony lamb goat "
    "mole otter beaver raccoon penguin"
)
KINDS = ("girl", "boy", *ANIMALS)
_PERSON_ADJECTIVES = _list(
    "little young small brave shy kind clever curious cheerful gentle quiet merry sleepy funny friendly eager"
)

THINGS = _list(
    "kite ball boat drum hat scarf book lantern bell basket button key map whistle shell "
    "feather spoon cup blanket box doll wagon ribbon ring umbrella flute pencil puzzle mitten "
    "necklace"
)
THING_ADJECTIVES = _list(
    "red blue green yellow old new tiny shiny round soft golden silver wooden striped "
    "pretty orange purple white big lovely"
)
_PLACES = _list(
    "forest meadow river mill hill pond village garden beach bridge cave farm market orchard "
    "lake valley castle barn lighthouse harbor"
)
_SKILLS = (
    "swim swimming swam, sing singing sang, dance dancing danced, paint painting painted, whistle "
    "whistling whistled, skate skating skated, read reading read, row rowing rowed, climb climbing "
    "climbed, juggle juggling juggled, sew sewing sewed, write writing wrote"
)
_BUILDINGS = _list("raft swing tower treehouse sandcastle snowman sled fence birdhouse table bench hut windmill tent")
_DISHES = _list("soup pie bread cake stew jam pudding porridge")
_FLAVORS = _list("apple berry carrot honey plum pumpkin nut cherry lemon")
_INGREDIENTS = _list("butter flour honey salt milk sugar cream water cinnamon")


def article(word: str) -> str:
    """Return ``a`` or ``an``, depending on the first letter."""
    return "an" if word[0] in "aeiou" else "a"


def _plain(*lines: str) -> Entries:
    return tuple((line, {}) for line in lines)


def _words(text: str) -> Entries:
    return _plain(*(part.strip() for part in text.split(",")))


def _feature(key: str, values) -> Entries:
    return tuple((value, {key: value}) for value in values)


def _with_article(key: str, values) -> Entries:
    return tuple((f"{article(value)} {value}", {key: value}) for value in values)


def _pronoun(his: str, hers: str) -> Entries:
    return ((his, {"g": "m"}), (hers, {"g": "f"}))


def _kinds() -> Entries:
    sexes = {"girl": {"g": "f"}, "boy": {"g": "m"}}
    return tuple((kind, {"kind": kind, **sexes.get(kind, {})}) for kind in KINDS)


def _people() -> dict[str, Entries]:
    return {
        "person.itself": tuple((name, {"name": name, "g": gender}) for name, gender in GENDER.items()),
        "person.kind": _kinds(),
        "person.adj": _feature("adj", _PERSON_ADJECTIVES),
        "person.aadj": _with_article("adj", _PERSON_ADJECTIVES),
        "person.he": _pronoun("he", "she"),
        "person.him": _pronoun("him", "her"),
        "person.his": _pronoun("his", "her"),
        "person.himself": _pronoun("himself", "herself"),
        "person.np": _plain("{*}", "{*}", "{*}", "the {*.adj} {*.kind}", "the {*.kind}"),
        "person.said": _plain(
            "(said|replied|answered) {*.np}( {sayadv}|)",
            "said {*}",
            "{*.he} said( {sayadv}|)",
            "whispered {*}",
        ),
        "person.asked": _plain("asked {*.np}( {sayadv}|)", "{*.he} asked( {sayadv}|)", "asked {*}"),
        "person.cried": _plain("(cried|shouted|laughed) {*}", "cried {*.np}", "{*.he} (cried|shouted)"),
    }


def _things() -> dict[str, Entries]:
    skills = [part.split() for part in _SKILLS.split(",")]
    return {
        "thing.itself": _plain("{*.adj} {*.noun}", "{*.noun}"),
        "thing.noun": _feature("noun", THINGS),
        "thing.adj": _feature("adj", THING_ADJECTIVES),
        "thing.aadj": _with_article("adj", THING_ADJECTIVES),
        "thing.new": _plain("{*.aadj} {*.noun}"),
        "place.itself": tuple((f"the {place}", {"name": place}) for place in _PLACES),
        "skill.itself": tuple((s[0], {"name": s[0]}) for s in skills),
        "skill.ing": tuple((s[1], {"name": s[0]}) for s in skills),
        "skill.past": tuple((s[2], {"name": s[0]}) for s in skills),
        "building.itself": _feature("name", _BUILDINGS),
        "building.new": _with_article("name", _BUILDINGS),
        "dish.itself": _plain("{*.flavor} {*.noun}"),
        "dish.noun": _feature("noun", _DISHES),
        "dish.flavor": _feature("flavor", _FLAVORS),
        "ingredient.itself": _feature("name", _INGREDIENTS),
    }


def _small_words() -> dict[str, Entries]:
    return {
        "link": _words(
            "then, soon, later, after a while, before long, a moment later, just then, suddenly, "
            "at last, that day, after that, a little later"
        ),
        "daytime": _words("morning, afternoon, evening, day, night"),
        "dayadj": _words("sunny, cold, bright, quiet, windy, rainy, warm, foggy, cloudy, fine, snowy, chilly"),
        "place": tuple((f"the {place}", {}) for place in _PLACES),
        "near": _words("near, beside, close to, not far from, behind"),
        "good": _words("happy, glad, excited, proud, calm, thankful, cheerful, pleased, delighted, hopeful"),
        "bad": _words("sad, worried, lonely, upset, scared, tired, gloomy, nervous, puzzled, unhappy"),
        "moveadv": _words("quickly, slowly, quietly, happily, carefully, eagerly, boldly, lazily, silently"),
        "sayadv": _words("softly, kindly, quietly, loudly, warmly, shyly, gently, at once, with a smile, with a sigh"),
        "walked": _words("walked, ran, hurried, skipped, marched, wandered, strolled, tiptoed, raced, rushed"),
        "hobby": _words(
            "painting pictures, picking flowers, watching the clouds, singing songs, climbing "
            "trees, counting stars, telling stories, collecting shells, baking bread, playing "
            "games, reading books, jumping over puddles, drawing maps, feeding the birds, "
            "chasing butterflies, dancing in the rain, looking at the moon, making hats, "
            "digging holes, flying kites, throwing snowballs, planting seeds"
        ),
        "family": _words("mother, father, sister, brother, grandmother, grandfather, aunt, uncle, cousin"),
        "spot": _plain("(under|behind|beside|near|next to|in front of) (a|the) {spotadj} {spotnoun}"),
        "spotadj": _words("big, mossy, tall, broken, crooked, dusty, hollow, dark, wide, thick, rusty, muddy"),
        "spotnoun": _words("tree, rock, bush, gate, log, fence, wall, well, bench, barrel, haystack, stump, ladder"),
        "wind": _plain("a (cool|warm|gentle|cold|strong|soft|sharp) (wind|breeze)"),
        "sky": _words("blue, clear, pink, gray, dark, pale, bright, full of clouds, full of stars"),
        "smell": _words("flowers, rain, grass, honey, pine, apples, bread, smoke, mint, roses, wet leaves"),
        "singer": _words("birds, bees, crickets, frogs, owls, sparrows, crows, ducks"),
        "sang": _words("singing, humming, chirping, calling, sleeping, hiding, chattering"),
        "stuff": _words("wood, rope, stones, nails, mud, sticks, leaves, straw, cloth, bricks, branches, string"),
        "trait": _words("kind, brave, honest, patient, clever, careful, polite, helpful, gentle, strong, quick, wise"),
        "sweet": _words("warm, sweet, fresh, hot, tasty, delicious, wonderful"),
        "drink": _words("tea, milk, cocoa, apple juice, lemonade, cold water, berry juice"),
        "sound": _words(
            "a loud crash, a soft voice, a funny noise, a strange sound, a tiny squeak, a deep "
            "rumble, a long whistle, a small cough, a splash, a gentle knock"
        ),
        "way": _words(
            "down the path, along the road, over the hill, out of the woods, around the corner, "
            "across the field, up the lane, through the gate, past the old oak, along the stream"
        ),
        "while": _words("an hour, a long time, a little while, half the day, some time, many hours, a moment"),
    }


LEXICON: Mapping[str, Entries] = _people() | _things() | _small_words()
VARIABLES: Mapping[str, str] = {
    "A": "person",
    "B": "person",
    "o": "thing",
    "H": "place",
    "P": "place",
    "K": "skill",
    "T": "building",
    "F": "dish",
    "N": "ingredient",
}
