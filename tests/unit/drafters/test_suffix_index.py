"""The index against its definition, by brute force."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ov_specdec.drafters import suffix_index
from ov_specdec.drafters.suffix_index import ANCHORS, END, MAX_MATCH, MAX_OCCURRENCES, SuffixIndex


def indexed(tokens, *texts):
    index = SuffixIndex()
    for text in texts:
        index.add(text)
    index.extend(tokens)
    return index


def match_length(tokens, position, sequence):
    length = 0
    while (
        length < min(position, len(sequence), MAX_MATCH)
        and tokens[position - 1 - length] == sequence[-1 - length]
    ):
        length += 1
    return length


def search(tokens, sequence):
    """Followers and length of the longest match, as `find` defines it."""
    lengths = {
        position: match_length(tokens, position, sequence)
        for position in range(len(tokens) - 1, -1, -1)
    }
    for size in ANCHORS:
        recent = [p for p, length in lengths.items() if length >= size][:MAX_OCCURRENCES]
        recent = [p for p in recent if tokens[p] != END]
        if recent:
            longest = max(lengths[p] for p in recent)
            return tuple(p for p in recent if lengths[p] == longest), longest
    return None


def most_frequent(tokens, positions, limit):
    """The continuation, draft token after draft token from the beginning."""
    path = []
    while len(path) < limit:
        followers = []
        for position in positions:
            text = [*tokens, *path]
            if text[position : position + len(path)] == path:
                followers.append(text[position + len(path)])
        votes = Counter(token for token in followers if token != END)
        if not votes:
            break
        path.append(max(votes, key=votes.get))
    return path


texts = st.lists(st.integers(0, 3), max_size=60)


@given(st.lists(st.lists(st.integers(0, 3), max_size=20), max_size=3), texts, st.integers(1, 9))
def test_finds_what_a_search_finds_and_continues_by_majority(others, tokens, limit):
    index = indexed(tokens, *others)
    found = index.find(tokens)
    expected = search(index.tokens, tokens)
    if expected is None:
        assert found is None
        return
    assert (found.followers, found.length) == expected
    assert found.continuation(limit) == most_frequent(index.tokens, found.followers, limit)


@given(texts, st.lists(st.integers(1, 7), min_size=1))
def test_it_does_not_matter_in_which_pieces_a_text_came(tokens, steps):
    pieces, start = SuffixIndex(), 0
    for step in steps:
        pieces.extend(tokens[start : start + step])
        start += step
    pieces.extend(tokens[start:])
    assert pieces.find(tokens) == indexed(tokens).find(tokens)


def test_ngrams_of_equal_hash_are_told_apart(monkeypatch):
    monkeypatch.setattr(suffix_index, "hash", lambda ngram: len(ngram), raising=False)
    match = indexed([], [1, 2, 3, 4, 7], [5, 6, 8]).find([1, 2, 3, 4])
    assert (match.continuation(1), match.length) == ([7], 4)
    assert indexed([], [1, 2, 3]).find([9]) is None


def test_is_the_surer_the_longer_the_match_and_the_more_agree():
    short = indexed([1, 5, 1]).find([1]).confidence
    long = indexed([], [1, 2, 3, 4, 5]).find([1, 2, 3, 4]).confidence
    agreeing = indexed([1, 5, 1, 5, 1]).find([1]).confidence
    split = indexed([1, 5, 1, 6, 1]).find([1]).confidence
    assert split < short < agreeing < long < 1.0
    assert short == 1 / 2


def test_confidences_are_few():
    found = set()
    for length in range(1, 41):
        for copies in range(1, 20):
            text = [*range(length), 90, *range(100, 104)]
            index = indexed([], *[text] * copies, [*range(length), 91])
            found.add(index.find(range(length)).confidence)
            found.add(indexed([], *[text] * copies).find(range(length)).confidence)
    assert 4 < len(found) <= 12
    assert 0.0 < min(found) < max(found) < 1.0


class Watched(int):
    """A token that looks into an index whenever an n-gram of it is hashed."""

    look = None

    def __hash__(self):
        look, Watched.look = Watched.look, None
        if look is not None:
            look()
            Watched.look = look
        return super().__hash__()


def test_others_may_look_into_it_while_it_grows(monkeypatch):
    index, found = indexed([]), []

    def look():
        match = index.find([9, 1, 2])
        if match is not None:
            found.append(match.continuation(5))

    monkeypatch.setattr(Watched, "look", staticmethod(look))
    index.extend([Watched(token) for token in [1, 2, 3, 1, 2, 3, 4, 1, 2] * 3])
    assert len(found) > 50
    assert {int(path[0]) for path in found} == {3}  # whose hash looks into nothing
