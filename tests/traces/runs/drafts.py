"""What one request drafts and feeds, pass by pass: each drafter, cache, plan and end."""

from ov_specdec.drafters.factory import DrafterKind, draft_model, suffix_matches
from ov_specdec.planning.costs import CostCurve, PassCurve
from tests.traces.describe import FINISH, Model, add, run

NEAR, ALMOST = Model(drift=1.5), Model(drift=1, ticks=(0.1, 0.01))
PROMPT = "onceuponatime"
LONGER = "onceuponatimethereonce"
REPEATS = "zzwQjbjJNKzzwQjbjJ"
SHORT = {"max_new_tokens": 8, "num_assistant_tokens": 2}

MATCHES_FIRST = DrafterKind("matches first", (suffix_matches, draft_model))
"""With a constant length, "both" drafts with the model alone."""

CHEAP = PassCurve({1: 0.1, 2: 0.11, 8: 0.15, 16: 0.2})
"""What passes of draft models take."""

CURVE = CostCurve(PassCurve({1: 1.0, 4: 1.2, 8: 1.5, 16: 2.2, 64: 5.0}, per_read=0.001), CHEAP)

RUNS = (
    run(
        "three draft tokens, paged",
        add("a", PROMPT, max_new_tokens=24, num_assistant_tokens=3),
        draft=NEAR,
    ),
    run(
        "three draft tokens, stateful, hidden entries trimmed late",
        add("a", PROMPT, max_new_tokens=30, num_assistant_tokens=3),
        main=Model("stateful", max_masked=6),
        draft=Model("stateful", drift=1.5, max_masked=4),
    ),
    run(
        "a draft that is always right, and behind by two tokens",
        add("a", PROMPT, max_new_tokens=20, num_assistant_tokens=4),
        draft=Model(),
    ),
    run(
        "matches in the text itself",
        add("a", REPEATS, max_new_tokens=24, num_assistant_tokens=4),
        drafter="suffix",
    ),
    run(
        "matches, and a draft model where there are none",
        add("a", REPEATS, max_new_tokens=24, num_assistant_tokens=4),
        draft=NEAR,
        drafter=MATCHES_FIRST,
    ),
    run(
        "a draft model with other tokens, by its text",
        add("a", "once upona ti m e", max_new_tokens=20, num_assistant_tokens=3),
        add("b", "WWaabbccV ddee", max_new_tokens=8, num_assistant_tokens=3),
        add("c", "a b c d e ", max_new_tokens=3, num_assistant_tokens=1),
        draft=Model(drift=1),
        pairing="retokenize",
    ),
    run(
        "a draft model that sees the end of the text",
        add("a", LONGER, max_new_tokens=28, num_assistant_tokens=3),
        draft=Model(max_length=16, drift=0.5),
    ),
    run(
        "adaptive, alone, on given costs",
        add("a", LONGER, max_new_tokens=40),
        draft=ALMOST,
        curve=CURVE,
    ),
    run(
        "models that are compiled once more for a few sizes",
        add("a", LONGER, max_new_tokens=20),
        add("b", REPEATS, max_new_tokens=10),
        main=Model(static_shapes=(2, 4, 8)),
        draft=Model(drift=1, static_shapes=(1, 2, 6)),
        drafter="both",
        curve=CURVE,
    ),
    run(
        "an end-of-sequence token, in the middle of a draft and drafted",
        add("middle", PROMPT, eos_token_id=[7], num_assistant_tokens=6),
        FINISH,
        add("drafted", PROMPT, eos_token_id=[46], num_assistant_tokens=6, cache_prompt=False),
        draft=Model(),
    ),
    run(
        "a draft model that fails, and is asked again",
        add("a", PROMPT, **SHORT),
        FINISH,
        add("b", PROMPT, **SHORT),
        draft=Model(drift=1.5, fails_at=(3,)),
    ),
)
