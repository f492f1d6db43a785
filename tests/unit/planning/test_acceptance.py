"""How often draft tokens are accepted: by source, by confidence, and by kind of match."""

from ov_specdec.planning.acceptance import Acceptance, Counts
from tests.support.rounds import a_round


def taught(*rounds, common=None):
    acceptance = Acceptance(Counts() if common is None else common)
    for stats in rounds:
        acceptance.learn(stats)
    return acceptance


def rate(acceptance, match=None):
    return acceptance.rate("model" if match is None else "prompt-lookup", match)


def test_a_new_text_starts_with_what_others_had_and_is_believed_soon():
    common = Counts()
    taught(*[a_round(4, 0)] * 100, common=common)
    assert rate(taught(common=common)) < 0.1
    assert rate(taught(*[a_round(4, 4)] * 10, common=common)) > 0.5


def test_each_kind_of_match_has_its_own_acceptance():
    long = a_round(4, 4, source="prompt-lookup", match_confidence=0.75)
    short = a_round(4, 0, source="prompt-lookup", match_confidence=0.5)
    acceptance = taught(*[long, short] * 50)
    assert rate(acceptance, match=0.75) > 0.9
    assert rate(acceptance, match=0.5) < 0.1


def test_a_match_that_was_declined_teaches_what_it_would_have_been_worth():
    rounds = [a_round(declined=("prompt-lookup", 0.5, True))] * 50
    assert rate(taught(*rounds), match=0.5) > 0.8
