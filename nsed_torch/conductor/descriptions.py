"""What workers say of themselves: the experts' own words, and many other ways to say it, from which lessons draw."""

import random

GENERALIST = ("generalist", "adds, counts siblings and friends, writes words backwards, knows families")
SPECIALISTS = {
    "sums": "adds two small numbers",
    "siblings": "counts brothers, sisters and friends",
    "words": "writes words backwards",
    "relations": "tells who is what to whom in a family",
}
"""What the experts say of themselves, by the kind of question they know."""

OTHER_WORDS = {
    "sums": (
        "does additions",
        "works out what two numbers come to together",
        "is good at plus",
        "sums up numbers",
        "computes totals",
        "calculates a + b",
        "addition of whole numbers",
        "finds the sum",
        "adds things up",
        "counts one number on from another",
        "knows simple sums",
        "makes one number out of two by adding",
        "increases a number by another",
        "arithmetic: plus",
    ),
    "siblings": (
        "knows how many siblings or friends somebody has",
        "tells the number of sisters and brothers",
        "counts siblings",
        "says how many sisters a brother has",
        "answers questions on the number of somebody's friends",
        "works out how many girls or boys there are among brothers and sisters",
        "counts the children of a household from one of them",
        "how many brothers, how many sisters",
        "reckons how many friends a friend has",
        "sees that a brother's sisters are one more",
        "sizes of families and groups of friends",
        "expert on counting kin and friends",
    ),
    "words": (
        "turns the order of words around",
        "reverses lists of words",
        "says words from the last to the first",
        "puts a list in opposite order",
        "reads a list from its end",
        "reversal of word lists",
        "gives the words in inverse order",
        "last word first, first word last",
        "inverts the order of a list",
        "lists things the other way round",
        "takes names or words and lists them in reverse",
        "starts with the last of several words",
    ),
    "relations": (
        "knows how relatives are called",
        "says how people of a family are related",
        "knows kinship",
        "finds the relationship of two people",
        "tells mothers, uncles and cousins apart",
        "understands family trees",
        "names what one relative is to another",
        "knows who is whose aunt, father or wife",
        "reads who married whom and says how they are related",
        "family relationships in one word",
        "explains how two people of a family are connected",
        "genealogy",
    ),
}
"""The same in words that no expert uses, so that it is a description that is learned and not a worker."""

MANY_SIDED = (
    "does a bit of everything",
    "additions, siblings, word order and relatives",
    "knows a little about numbers, families and words",
    "sums, counts friends, reverses lists, names relatives",
    "all-rounder: adding, counting siblings, reversing, kinship",
    "answers questions of many kinds",
    "has learned adding, counting, reversing and families at once",
    "jack of all trades",
    "general questions of any kind",
    "is asked where nobody else knows",
)
"""A generalist in other words; where a specialist is there too, it is the specialist who is asked."""

OTHERS: dict[str, tuple[str, ...]] = {
    "lcm": (
        "finds the least common multiple",
        "looks for the smallest number that two others divide",
        "common multiples",
        "knows the LCM",
    ),
    "letter_counting": (
        "counts how often a letter comes",
        "knows how many times a letter is in a text",
        "counts letters",
        "looks for all places of a character",
    ),
    "prime_factorization": (
        "finds prime factors",
        "takes numbers apart into primes",
        "factorizes integers",
        "writes a number as a product of primes",
    ),
    "spell_backward": (
        "spells a word from its end",
        "writes the letters of a word backwards",
        "reverses a single word",
        "backward spelling",
    ),
    "calendar_arithmetic": (
        "knows dates and weekdays",
        "reads the calendar",
        "which day of the week a date is",
        "counts days, leap years",
    ),
    "base_conversion": (
        "converts numbers to another base",
        "knows binary and hexadecimal",
        "changes the number system",
        "writes numbers with other digits",
    ),
    "simple_equations": (
        "solves equations",
        "finds the unknown of an equation",
        "algebra: solves for x",
        "linear equations",
    ),
    "count_primes": (
        "counts prime numbers",
        "knows how many primes lie between two numbers",
        "primes in an interval",
        "tells how many numbers of a range are prime",
    ),
    "fraction_simplification": (
        "simplifies fractions",
        "brings fractions to their lowest terms",
        "reduces a fraction",
        "cancels fractions",
    ),
    "products": (
        "multiplies",
        "works out products of two numbers",
        "does times tables",
        "multiplication of integers",
    ),
    "sentence_reordering": (
        "brings the words of a sentence into order",
        "mends mixed up sentences",
        "unscrambles sentences",
        "restores a sentence whose words are jumbled",
    ),
    "complex_arithmetic": (
        "reckons with complex numbers",
        "knows the imaginary unit",
        "complex arithmetic",
        "adds and multiplies numbers with i",
    ),
    "count_bits": (
        "counts bits that are 1",
        "looks at the bits of a number",
        "population count",
        "ones in a binary number",
    ),
    "syllogism": (
        "says whether a conclusion follows",
        "checks arguments in logic",
        "classical syllogisms",
        "decides if statements imply another",
    ),
    "time_intervals": (
        "finds how much time has passed",
        "works out durations",
        "differences between two times",
        "hours and minutes between moments",
    ),
    "advanced_geometry": (
        "geometry of triangles by coordinates",
        "finds incircles, orthocentres and angles",
        "triangles in the plane",
    ),
    "bitwise_arithmetic": (
        "bitwise operators and shifts",
        "reckons with hexadecimal numbers bit by bit",
        "AND, OR, XOR of integers",
    ),
    "coin_flip": (
        "chances of coin tosses",
        "probability of heads and tails",
        "knows the odds when coins are thrown",
    ),
    "color_cube_rotation": (
        "turns a coloured cube in mind",
        "knows which side of a cube is where",
        "rotations of cubes",
    ),
    "countdown": (
        "makes a target out of given numbers",
        "the numbers game: combines all numbers to reach a value",
    ),
    "course_schedule": (
        "checks whether all courses can be finished",
        "prerequisites of courses",
        "finds cycles in what needs what",
    ),
    "cryptarithm": (
        "puzzles where letters stand for digits",
        "finds the digit behind each letter",
        "solves cryptarithms",
    ),
    "decimal_arithmetic": (
        "reckons with decimals to many digits",
        "exact decimal calculations",
        "terms with decimal points and brackets",
    ),
    "graph_color": (
        "colours the vertices of a graph",
        "gives neighbours in a graph different colours",
        "graph colouring",
    ),
    "isomorphic_strings": (
        "says whether two strings have the same pattern",
        "compares strings letter for letter: isomorphic or not",
    ),
    "maze": (
        "finds the way through a maze",
        "shortest paths in a labyrinth",
        "navigates from start to goal",
    ),
    "mini_sudoku": (
        "fills small sudokus",
        "sudoku of four by four",
        "completes number grids",
    ),
    "number_filtering": (
        "removes numbers from a list by size",
        "keeps the numbers above or below a bound",
        "filters lists of numbers",
    ),
    "number_format": (
        "picks the largest or smallest number",
        "compares numbers however they are written",
        "reads number formats",
    ),
    "number_sequence": (
        "continues a sequence of numbers",
        "finds the next number of a pattern",
        "sees the rule of a series",
    ),
    "palindrome_generation": (
        "makes palindromes out of letters",
        "words that read the same from both ends",
        "arranges letters mirrored",
    ),
    "power_function": (
        "raises numbers to powers",
        "exponents",
        "computes powers in scientific notation",
    ),
    "puzzle24": (
        "makes 24 from four numbers",
        "the game of twenty-four",
    ),
    "ransom_note": (
        "says whether a note can be cut out of a magazine",
        "checks that letters of one text suffice for another",
    ),
    "rotate_matrix": (
        "rotates matrices",
        "turns a square of numbers clockwise",
        "matrix rotation by degrees",
    ),
    "simple_geometry": (
        "angles of polygons",
        "finds the missing interior angle",
        "simple geometry",
    ),
    "word_sorting": (
        "sorts words by the alphabet",
        "brings words into ascending or descending order",
        "alphabetical order",
    ),
    "gsm_symbolic": (
        "word problems from school",
        "solves stories about money, work and amounts",
        "grade school mathematics",
    ),
}
"""Families of reasoning-gym that no expert knows, and what somebody who does would say.

Not in here, so that whom a Conductor asks where nothing was learned can be measured: `gcd`, `leg_counting`,
`caesar_cipher`, `dice`, `word_ladder` and whatever else is not named.
"""

FRAMES = ("{}", "{}", "{}", "{}", "{}, nothing else", "skill: {}", "expert: {}", "{} (small model)")
"""What stands around a description, drawn."""


def described(kind: str, draw: random.Random) -> str:
    """What a worker of a kind says of itself, drawn: half of the time an expert's own words."""
    own = GENERALIST[1] if kind == GENERALIST[0] else SPECIALISTS.get(kind)
    if own is not None and draw.random() < 0.5:
        return own
    if kind == GENERALIST[0]:
        words = draw.choice(MANY_SIDED)
    else:
        words = draw.choice(OTHER_WORDS[kind] if kind in OTHER_WORDS else OTHERS[kind])
    return draw.choice(FRAMES).format(words)
