"""Made-up records of rounds."""

from ov_specdec.stats import RoundStats


def a_round(drafted=0, accepted=0, seconds=1.0, drafting=0.0, size=None, **more):
    return RoundStats(
        drafted,
        accepted,
        accepted + 1,
        drafting,
        seconds,
        0.0,
        seconds + drafting,
        pass_tokens=1 + drafted if size is None else size,
        source=more.pop("source", "model"),
        **more,
    )
