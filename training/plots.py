"""Sentence templates by beat, and the plots that order the beats.

A line that starts with ``!`` is held out and never occurs in the training text. The words ``named`` and ``called``
occur only where a character is introduced, so that the text alone identifies an introduction: the first character
of a story is ``named``, the second one ``called``.
"""

from collections.abc import Mapping

_OPENING: Mapping[str, tuple[str, ...]] = {
    "intro": (
        "(once upon a time|long ago|once|many years ago) there (was|lived) {A.aadj} {A.kind} named {A}.",
        "{A.aadj} {A.kind} named {A} lived {near} {H}( with {A.his} {family}|).",
        "in a (small|little|cozy|tiny|white) (house|cottage|hut|cabin) {near} {H} lived {A.aadj} {A.kind} named {A}.",
        "this is (a|the) story (of|about) {A.aadj} {A.kind} named {A}, who lived {near} {H}.",
        "there was once {A.aadj} {A.kind} named {A} who (lived {near} {H}|loved {hobby}).",
        "(far away|not long ago), {near} {H}, there lived {A.aadj} {A.kind} named {A}.",
        "! {near} {H} stood the (house|cottage|cabin) of {A.aadj} {A.kind} named {A}.",
    ),
    "like": (
        "{A} loved {hobby}( and {hobby}|)( with {A.his} {family}|).",
        "every {daytime} {A} spent {while} {hobby}( {near} {place}|).",
        "more than anything {A.he} loved {hobby}( {near} {place}|).",
        "{A} was (very|quite|always|) {trait} and (very|quite|often|) {trait}.",
        "{A.his} favorite thing (in the world|of all|) was {hobby}( {near} {place}|).",
        "{A.his} {family} said that {A} was the most {trait} {A.kind} {near} {place}.",
        "! nothing made {A} (smile|laugh) like {hobby} {near} {place}.",
        "! when {A.he} was not {hobby}, {A} was {hobby}.",
    ),
    "friend": (
        "{A} had a (good|dear|close|true) friend, {B.aadj} {B.kind} called {B}.",
        "{A.his} (best|closest|oldest|dearest) friend was {B.aadj} {B.kind} called {B}.",
        "{near} {place} lived {A.his} friend, {B.aadj} {B.kind} called {B}.",
        "{B.aadj} {B.kind} called {B} was {A.his} (friend|neighbor), and they loved {hobby} together.",
        "! {A} (often|always) went {hobby} with {B.aadj} {B.kind} called {B}.",
    ),
    "weather": (
        "the {daytime} was {dayadj} and the sky was {sky}.",
        "{wind} blew (over|across|from|through) {place}( and the {singer} were {sang}|).",
        "it was a {dayadj} {daytime}, and the {singer} were {sang} {near} {place}.",
        "(rain|snow|mist) (fell|drifted) (softly|gently|slowly|quietly) over {place}( all {daytime}|).",
        "the air smelled of {smell} and {smell}.",
        "(white|gray|dark|little) clouds (floated|drifted|moved|rolled) over {place}.",
        "the {singer} were {sang} and {wind} came from {place}.",
        "! (outside|{near} {place}) it was {dayadj}, and one could smell {smell}.",
    ),
    "day": (
        "one {dayadj} {daytime} {A} (woke up|sat) {near} {place} and felt {good}.",
        "one {dayadj} {daytime} {A} {walked} to {P}( with {A.his} {family}|).",
        "one {daytime} {A} {walked} {moveadv} {way} to {P}.",
        "on a {dayadj} {daytime} {A} went out to {place} to play( with {A.his} {family}|).",
        "! it was a {dayadj} {daytime} when {A} {walked} {way}.",
    ),
}

_SHARED: Mapping[str, tuple[str, ...]] = {
    "walk": (
        "({link} |){A.np} {walked} {moveadv} to {place}.",
        "({link} |){A.he} {walked} {way} (to|toward) {place}( and sang|).",
        "{A} {walked} past {place} and {way} (until {A.his} legs were tired|for {while}|without a word).",
        "{moveadv} {A} {walked} {way} with {A.his} {o.noun}.",
        "! {way} {A} {walked}, and the {singer} were {sang}.",
    ),
    "sound": (
        "({link} |){A} heard {sound} {spot}.",
        "({link} |){sound} came from {spot}, and {A} (stopped|turned around|held {A.his} breath).",
        "there was {sound} {spot}( that made {A} jump|).",
        '"did you hear that?" {A.asked}.',
        "! {A} (stopped|stood still), for there was {sound} {spot}.",
    ),
    "worry": (
        "{A.np} felt (very|so|a little|) {bad}( and sat down {spot}|).",
        "({link} |){A} sat down {spot} and began to cry.",
        '"(oh no|oh dear), what (shall|can|should) I do now?" {A.asked}.',
        "{A.he} was {bad} and (wanted to go home|could not smile|did not know what to do).",
        '"I feel so {bad}," {A.said}.',
        "a tear (ran|rolled) down the (cheek|face) of {A.np}.",
        "! (never before|not for a long time) had {A} felt so {bad}.",
    ),
    "meet": (
        "({link} |){A} met {B.aadj} {B.kind} called {B}( {near} {place}| {spot}).",
        "({link} |){B.aadj} {B.kind} called {B} came {way}.",
        "({link} |){A} saw {B.aadj} {B.kind} called {B} {spot}.",
        "it was {B.aadj} {B.kind} called {B}, who (lived {near} {place}|was {hobby}|came {way}).",
        "{spot} sat {B.aadj} {B.kind} called {B}.",
        "! {way} came {B.aadj} {B.kind} called {B} to {place}.",
    ),
    "greet": (
        '"(hello|good {daytime}), {A}," {B.said}.',
        '"why are you so {bad}, {A}?" {B.asked}.',
        '"what (is the matter|is wrong|has happened), {A}?" {B.asked}.',
        "{B.np} (smiled|looked) at {A} and (waved|nodded|sat down {spot}).",
        '"you look {bad}," {B.said}.',
        '! "(come here|sit down), {A}, and tell me about it," {B.said}.',
    ),
    "kind": (
        '"do not (worry|cry|be {bad}), {A}," {B.said}.',
        '"I (can|will) help you, {A}," {B.said}.',
        '"(we can|let us) do it together," {B.said}.',
        "{B} was {trait} and {trait}, and wanted to help {A}.",
        "{B} gave {A} some {sweet} {drink} and a (hug|smile|warm blanket).",
        '"two are better than one," {B.said}.',
        "! {B} put a (hand|paw) on the shoulder of {A} and (smiled|nodded).",
    ),
    "rest": (
        "({link} |)they sat {spot} and (drank|shared) some {sweet} {drink}.",
        "they rested {near} {place} for {while} and listened to the {singer}.",
        "{A} and {B} told each other (stories|jokes|secrets) about {place}.",
        "({link} |){B} and {A} looked at the {sky} sky and (laughed|rested|sang).",
        "! there was {sweet} {drink} for {A} and for {B}.",
    ),
    "thanks": (
        '"thank you(, {B}| so much), you are (so|very) {trait}," {A.said}.',
        '"I could not have done it without you, {B}," {A.said}.',
        "{A} (hugged|thanked) {B} and (laughed|smiled|danced) {near} {place}.",
        '"you are a (good|true|dear) friend, {B}," {A.said}.',
        "{A.np} thanked {B} and gave {B.him} some {sweet} {drink}.",
        '! "how can I ever thank you, {B}?" {A.asked}.',
    ),
    "joy": (
        "{A} and {B} were (very|so|both|) {good}.",
        "({link} |){A.np} felt {good} and {good}.",
        "{A} jumped (for joy|up and down) and {B} (laughed|sang|cheered|clapped).",
        '"(hooray|hurrah), this is the best {daytime} of all!" {A.cried}.',
        "they laughed until the {singer} {near} {place} stopped {sang}.",
        "! never had {A} and {B} been so {good}.",
    ),
    "end": (
        "from that day on {A} and {B} were (good|the best of|close) friends.",
        "({link} |){A} {walked} home to {H} and fell asleep( with a smile|).",
        "and {A} never forgot (the|that) {dayadj} {daytime} {near} {place}.",
        "{A} had learned that it is good to be {trait} and {trait}.",
        "that night {A} dreamed of {hobby} with {B}.",
        "and so {A} and {B} spent {while} {hobby} together {near} {place}.",
        "the moon rose over {place}, and {A} and {B} went home (tired but|very|both) {good}.",
        "! and if you go to {place}, you may (still|) see {A} and {B} {hobby}.",
    ),
}

_LOST: Mapping[str, tuple[str, ...]] = {
    "own": (
        "{A} had {o.new} that {A.he} took (everywhere|to {place}|to bed).",
        "{A.his} {family} gave {A} {o.new}( for {A.his} birthday|).",
        "{A.he} was very proud of {A.his} {o.adj} {o.noun}.",
        "of all {A.his} things, {A} liked {A.his} {o.adj} {o.noun} best.",
        "! {o.new} from {A.his} {family} was the (pride|treasure) of {A}.",
    ),
    "lose": (
        "({link} |){A} could not find {A.his} {o}.",
        "({link} |){A} saw that {A.his} {o} was (gone|missing).",
        "but {near} {P} {A.he} lost the {o}.",
        "{wind} (took|carried) the {o} away (over|toward|across) {P}.",
        '"where is my {o}?" {A.asked}.',
        "! {A} looked around, but the {o} was (gone|not there).",
    ),
    "search": (
        "{A.he} looked {spot} and {spot}( {moveadv}|).",
        "({link} |){A} (searched|looked) for the {o} {spot}, but it was not there.",
        "first {A.he} looked {spot}, then {spot}, but (there was no {o.noun}|nothing was there).",
        "{A.np} asked {A.his} {family} about the {o}, but nobody had seen it.",
        "! for {while} {A} searched {near} {P} for the {o}.",
    ),
    "tell": (
        '"I have lost my {o}," {A.said}.',
        '"have you seen (my|a {o.adj}) {o.noun}?" {A.asked}.',
        "{A} told {B} about the {o} and {P}.",
        '"my {o} is (gone|lost), and I have looked {spot}," {A.said}.',
        "! {A} said that the {o} was lost {near} {P}.",
    ),
    "seek": (
        "({link} |){A} and {B} {walked} to {P} to look for the {o}.",
        "{B} looked {spot} while {A} looked {spot}.",
        "together they searched for the {o} {near} {P} for {while}.",
        '"(maybe|perhaps) the {o} is {spot}," {B.said}.',
        "! {B} {walked} {way}, looking for the {o}.",
    ),
    "found": (
        "({link} |){B} found the {o} {spot}.",
        '"(look|here), your {o} is {spot}!" {B.cried}.',
        "there, {spot}, (lay|was) the {o} of {A}.",
        "({link} |){A} saw something {o.adj} {spot}, and it was the {o.noun}!",
        "{B} (reached|looked) {spot} and (pulled|took) out the {o}.",
        "! the {o} had been {spot} all the time.",
    ),
}

_LEARN: Mapping[str, tuple[str, ...]] = {
    "wish": (
        "more than anything {A} wanted to learn to {K}.",
        "{A} (wished|hoped) that {A.he} could {K} like {A.his} {family}.",
        "everyone {near} {H} could {K}, but {A} could not.",
        '"I want to learn to {K}," {A.said}.',
        "! there was one thing {A} could not do, and that was to {K}.",
    ),
    "try": (
        "({link} |){A.np} tried to {K} {near} {P}, but {A.he} (fell down|was too {bad}|could not).",
        "{A.he} tried for {while}, but {K.ing} was (hard|very hard|not easy).",
        "{A} tried to {K} {spot}, and the {singer} (laughed|stared).",
        '"I will never learn to {K}," {A.said}.',
        "! {K.ing} {near} {P} made {A} (tired and|very) {bad}.",
    ),
    "teach": (
        '"I can teach you to {K}," {B.said}.',
        "{B} {K.past} {moveadv} while {A} watched( {spot}|).",
        "{B} knew all about {K.ing} and showed {A} how to (begin|start).",
        '"when you {K}, you must be {trait}," {B.said}.',
        "! {B} (promised|offered) to teach {A} to {K}.",
    ),
    "practice": (
        "every {daytime} {A} and {B} {walked} to {P} to {K}.",
        "{A} practiced {K.ing} for {while}( {near} {P}| with {B}).",
        "({link} |){A} fell down {spot}, but {A.he} got up and tried again.",
        '"again, {A}, and this time be {trait}," {B.said}.',
        "! day after day {A} practiced {K.ing} {spot}.",
    ),
    "able": (
        "({link} |){A} could {K}( as well as {B}| all by {A.himself}|)!",
        "one {dayadj} {daytime} {A} {K.past} {near} {P}, and {B} clapped.",
        '"look, I can {K}!" {A.cried}.',
        "{A} {K.past} {moveadv} {way}, and {A.his} {family} was {good}.",
        "! all {daytime} long {A} {K.past} {near} {P}.",
    ),
}

_BUILD: Mapping[str, tuple[str, ...]] = {
    "plan": (
        "{A} wanted to build {T.new} {near} {P}.",
        '"I will build {T.new} for my {family}," {A.said}.',
        "{A} had a plan, and the plan was to build {T.new} (of {stuff} and {stuff}|{near} {P}).",
        "({link} |){A} drew a picture of {T.new}.",
        "! {T.new} {near} {P} was what {A} wanted most.",
    ),
    "gather": (
        "{A.he} (found|gathered) some {stuff} {spot} and some {stuff} {spot}.",
        "({link} |){A.np} carried {stuff} and {stuff} {way} to {P}.",
        "{A.his} {family} gave {A.him} {stuff} for the {T}.",
        "for the {T} {A.he} needed {stuff}, {stuff} and (a lot of|some|more) {stuff}.",
        "! {A} (piled|stacked) {stuff} and {stuff} {spot}.",
    ),
    "break": (
        "but {wind} (broke|pushed over) the {T}.",
        "({link} |)the {T} fell down with {sound}.",
        "{A} worked on the {T} for {while}, but it (fell over|was too small|did not stand).",
        '"my {T} is broken," {A.said}.',
        "! the {stuff} was too weak, and the {T} (broke|fell).",
    ),
    "repair": (
        "{B} held the {stuff} while {A} worked on the {T}.",
        "({link} |){A} and {B} mended the {T} with {stuff} and {stuff}.",
        '"we need more {stuff} for the {T}," {B.said}.',
        "{B} {walked} to {P} and came back with {stuff} for the {T}.",
        "! with {stuff} from {place} {B} made the {T} strong.",
    ),
    "done": (
        "({link} |)the {T} was (ready|finished), and it was (big|strong|beautiful|wonderful).",
        "everyone from {place} came to see the {T} {near} {P}.",
        '"what a (fine|strong|beautiful|wonderful) {T}!" {B.cried}.',
        "({link} |){A} and {B} sat {near} the {T} and looked at {place}.",
        "! there it stood {near} {P}, the {T} of {A} and {B}.",
    ),
}

_STORM: Mapping[str, tuple[str, ...]] = {
    "storm": (
        "({link} |)a (great|big|terrible|wild) storm came over {place}.",
        "({link} |)the sky was dark and the rain fell on {H}.",
        "thunder rolled over {place} and the wind shook the (door|windows|roof|trees).",
        "{A} closed the (door|windows|shutters) and lit a (lamp|candle|fire).",
        "! a storm from {place} was on its way to {H}.",
    ),
    "knock": (
        "({link} |)there was a (knock|tap|noise) at the door of {A}.",
        "{A} opened the door {moveadv} and looked out into the (rain|storm|dark|night).",
        '"is (anyone|somebody) there?" {A.asked}.',
        "! {A} heard that someone was at the door and {walked} to open it.",
    ),
    "guest": (
        "at the door stood {B.aadj} {B.kind} called {B}, (wet|cold|shaking|tired) and {bad}.",
        "out in the rain was {B.aadj} {B.kind} called {B} with {o.new}.",
        "{B.aadj} {B.kind} called {B} came in from the storm with a wet (coat|nose|face).",
        "! in the doorway {A} saw {B.aadj} {B.kind} called {B}.",
    ),
    "plea": (
        '"please may I come in, the storm is so (loud|cold|strong)?" {B.asked}.',
        '"the wind has broken my (roof|window|door)," {B.said}.',
        '"I am (wet|cold|hungry) and {bad}," {B.said}.',
        "{B} (shivered|sneezed|shook) and asked for some {drink}.",
        "! {B} said that {B.he} was {bad} and (wet|cold).",
    ),
    "share": (
        "{A} gave {B} {sweet} {F} and {sweet} {drink}.",
        '"come in, {B}, and sit by the fire," {A.said}.',
        "{A} (wrapped {B} in a warm blanket|gave {B} a dry coat) and made some {drink}.",
        "they ate {F} by the fire and (talked|sang|told stories) for {while}.",
        "! by the fire there was {sweet} {F} for {B}.",
    ),
    "calm": (
        "({link} |)the storm (was over|went away), and the sky over {place} was {sky}.",
        "in the morning {wind} blew and the {singer} were {sang} again.",
        "({link} |){A} and {B} {walked} out to {place} to see the (sun|rainbow|stars).",
        "! at sunrise {place} was (still|quiet) and the storm was gone.",
    ),
}

_QUARREL: Mapping[str, tuple[str, ...]] = {
    "both": (
        "({link} |){A} and {B} found {o.new} {spot}.",
        "{near} {P} lay {o.new}, and {A} and {B} both wanted it.",
        "{A} wanted to play with the {o}, and so did {B}.",
        "! {o.new} {spot} was seen by {A} and {B}.",
    ),
    "fight": (
        '"the {o} is mine," {A.said}.',
        '"no, I saw the {o} first!" {B.cried}.',
        "{A} pulled the {o} and {B} pulled it too.",
        "they (shouted|argued) about the {o} for {while}, and the {singer} stopped {sang}.",
        "! {A} would not give the {o} to {B}.",
    ),
    "apart": (
        "({link} |){B} {walked} home (in tears|without a word) and {A} stayed {near} {P}.",
        "now {A} had the {o}, but playing alone was no fun.",
        "{A} looked at the {o} and thought of {B}.",
        "{B} sat {spot} all alone and felt {bad}.",
        "! {A} had the {o.noun}, but {A.he} had no friend.",
    ),
    "sorry": (
        '"I am sorry, {B}," {A.said}.',
        '"I was not {trait}, and I am sorry," {A.said}.',
        "({link} |){A} {walked} {way} to find {B} and say sorry.",
        '"I am sorry too, {A}," {B.said}.',
        "! {A} begged {B} to forgive {A.him}.",
    ),
    "agree": (
        '"we can share the {o}," {A.said}.',
        "({link} |){A} and {B} took turns with the {o} {near} {P}.",
        "{A} gave the {o} to {B}, and {B} (smiled|laughed|gave it back).",
        '"you can have the {o} in the (morning|evening), {B}," {A.said}.',
        "! the {o} was now for {A} and {B} together.",
    ),
}

_WAY: Mapping[str, tuple[str, ...]] = {
    "set": (
        "{A} wanted to see {P}, so {A.he} packed some {F} and left {H}.",
        '"I am going to {P}," {A.said}.',
        "with {o.new} and some {F}, {A} {walked} from {H} to {P}.",
        "{A.his} {family} told {A} never to go to {P} alone, but {A.he} went( {moveadv}|).",
        "! off to {P} {walked} {A}, with {o.new}.",
    ),
    "astray": (
        "({link} |){A} (took a wrong turn|lost the path) {near} {place}.",
        "({link} |)the path was gone and {A} was lost {near} {P}.",
        '"I do not know the way back to {H}," {A.said}.',
        "it was (dark|foggy|late), and {A} could not see {H}.",
        "! {near} {place} {A} knew that {A.he} was lost.",
    ),
    "show": (
        '"I know the way to {H}," {B.said}.',
        "{B} (took|led) {A} {way} and past {place}.",
        '"follow me past {place} and {way}," {B.said}.',
        "{A} followed {B} {way} for {while}.",
        "! past {place} and {way} {B} (took|led) {A}.",
    ),
    "home": (
        "({link} |){A} saw the lights of {H}.",
        "{A.his} {family} {walked} out to (hug|meet|kiss) {A}.",
        '"I am home!" {A.cried}.',
        "there was {sweet} {F} for {A} and {B}( at the table|).",
        "! the {family} of {A} was {good} to see {A.him}.",
    ),
}

_GIFT: Mapping[str, tuple[str, ...]] = {
    "birthday": (
        "(tomorrow|soon|that day) it was the birthday of {B}.",
        '"what can I give {B} for {B.his} birthday?" {A.asked}.',
        "{A} wanted to give {B} something (nice|special|{sweet}) for {B.his} birthday.",
        "! {B} had a birthday, and {A} had no gift for {B.him}.",
    ),
    "shop": (
        "({link} |){A} {walked} to {P} to find a gift.",
        "{near} {P} {A.he} saw {o.new} {spot}.",
        "{A.he} looked {spot} and found {o.new}.",
        '"{o.new} would be (nice|right|perfect) for {B}," {A.said}.',
        "! among many things {A} chose {o.new} for {B}.",
    ),
    "wrap": (
        "({link} |){A} wrapped the {o} in (paper|cloth|leaves|silk) and hid it {spot}.",
        "{A} cleaned the {o} for {while} until it (shone|looked new).",
        "{A.his} {family} helped {A.him} to (wrap|clean|carry) the {o}.",
        "! in (paper|cloth|silk) {A} carried the {o} {way}.",
    ),
    "party": (
        "({link} |){A} {walked} to the (party|house) of {B} with the {o}.",
        "at the party there was {sweet} {F} and {drink}.",
        '"happy birthday, {B}!" {A.cried}.',
        "{B} opened the gift and saw {o.new}.",
        "! the party of {B} was {near} {place}, with {sweet} {F}.",
    ),
    "glad": (
        '"(oh, {o.new}|{o.new}), just what I wanted!" {B.cried}.',
        "{B} (held|hugged) the {o} and was {good}.",
        "{B} showed the {o} to (everyone|{B.his} {family}).",
        "! {B} played with the {o} for {while}.",
    ),
}

_COOK: Mapping[str, tuple[str, ...]] = {
    "hungry": (
        "({link} |){A} was hungry and wanted to make {F} for {B}.",
        '"I will make {sweet} {F} for {B}," {A.said}.',
        "{A.his} {family} had taught {A} to make {F}.",
        "! for {B}, {A} planned to make {F}.",
    ),
    "lack": (
        "but there was no {N} in the (house|kitchen|jar|cupboard).",
        '"I have no {N} for my {F}," {A.said}.',
        "{A.he} looked {spot} for some {N}, but there was none.",
        "! no {N}, no {F}, thought {A}.",
    ),
    "fetch": (
        "({link} |){A} {walked} to {P} to get some {N}.",
        "{near} {P} {A.he} (bought|found|asked for) {N} and {stuff}.",
        '"may I have some {N}, please?" {A.asked}.',
        "{A} carried the {N} {way} in {o.new}.",
        "! for {N} one had to go to {P}, so {A} {walked} there.",
    ),
    "cook": (
        "({link} |){A} mixed the {N} with (water|eggs|oats) and made the {F}.",
        "the {F} (cooked|stood on the fire) for {while} and the air smelled of {smell}.",
        "{A.he} added some {N} and (tasted|stirred) the {F} {moveadv}.",
        "! soon the {F} with {N} was on the fire.",
    ),
    "eat": (
        "({link} |){A} and {B} ate the {F} {near} {place}.",
        '"this is the best {F} I have ever had!" {B.cried}.',
        "the {F} was {sweet} and {sweet}.",
        "{B} ate (two|three|four|five) bowls of {F} and was {good}.",
        "! of the {F} not a (bit|crumb|spoon) was left.",
    ),
}

TEMPLATES: Mapping[str, tuple[str, ...]] = (
    dict(_OPENING)
    | dict(_SHARED)
    | dict(_LOST)
    | dict(_LEARN)
    | dict(_BUILD)
    | dict(_STORM)
    | dict(_QUARREL)
    | dict(_WAY)
    | dict(_GIFT)
    | dict(_COOK)
)

# A plot lists its beats; ``/`` starts a paragraph, ``?`` marks a beat that half of the stories include.
PLOTS: tuple[str, ...] = (
    "intro like? own own? weather? / day lose search worry? search? walk? / meet greet tell kind? sound? "
    "seek seek? found / thanks joy? end end?",
    "intro like? wish wish? weather? / day? try worry? try? / meet greet? teach kind? practice practice? "
    "sound? / able able? joy thanks? end end?",
    "intro like? weather / plan gather gather? break worry? break? / meet greet? kind? repair rest? repair? "
    "/ done done? joy? thanks? end end?",
    "intro like? weather storm storm? / knock knock? guest plea plea? share share? kind? / calm calm? "
    "thanks? joy? end end?",
    "intro friend like? weather? / both both? fight fight? apart worry? apart? / walk? sorry sorry? agree "
    "agree? / joy rest? end end?",
    "intro like? set set? weather? / walk? sound? astray worry astray? / meet greet kind? show show? rest? / "
    "home home? thanks? joy? end",
    "intro like? friend / birthday birthday? weather? shop shop? wrap? sound? / party party? glad glad? "
    "thanks? joy? rest? end end?",
    "intro friend like? / hungry hungry? lack lack? weather? fetch walk? fetch? sound? / cook cook? eat "
    "eat? joy? thanks? end end?",
)
