"""How many tokens are drafted: constant, heuristic and adaptive lengths, on given costs."""

from ov_specdec.planning.costs import CostCurve, PassCurve
from tests.traces.describe import FINISH, Model, Step, add, run

NEAR = Model(drift=1, ticks=(0.1, 0.01))
PROMPT = "onceuponatimethereonce"
REPEATS = "zzwQjbjJNKzzwQjbjJ"
AUTO = {"max_new_tokens": 40}

RISING = {1: 1.0, 4: 1.2, 8: 1.5, 16: 2.2, 64: 5.0}
CHEAP = PassCurve({1: 0.1, 2: 0.11, 8: 0.15, 16: 0.2})
"""What passes of draft models take."""

CURVE = CostCurve(PassCurve(RISING, per_read=0.001), CHEAP)
SHAPES = PassCurve(RISING, change=0.8, per_read=0.001)
"""Passes of another size than the last one take longer."""

RUNS = (
    run(
        "heuristic, from five and from two",
        add("a", PROMPT, max_new_tokens=30, num_assistant_tokens_schedule="heuristic"),
        FINISH,
        add(
            "b",
            PROMPT,
            max_new_tokens=20,
            num_assistant_tokens=2,
            num_assistant_tokens_schedule="heuristic",
        ),
        draft=NEAR,
    ),
    run(
        "constant, but for draft tokens that the draft model hardly believes in",
        add(
            "a",
            PROMPT,
            max_new_tokens=24,
            num_assistant_tokens=5,
            assistant_confidence_threshold=0.35,
        ),
        draft=NEAR,
    ),
    run("adaptive, on the nominal cost curve", add("a", PROMPT, **AUTO), draft=NEAR),
    run("adaptive, alone, on given costs", add("a", PROMPT, **AUTO), draft=NEAR, curve=CURVE),
    run(
        "adaptive, with passes that are padded to few sizes",
        add("a", PROMPT, **AUTO),
        draft=NEAR,
        curve=CostCurve(SHAPES, CHEAP),
    ),
    run(
        "adaptive, with a draft model that hardly ever pays",
        add("a", PROMPT, max_new_tokens=72),
        draft=Model(drift=100),
        curve=CostCurve(PassCurve({1: 1.0, 2: 1.04, 16: 1.6}), PassCurve({1: 0.06})),
    ),
    run(
        "adaptive, one budget for two, with a draft model that hardly ever pays",
        add("a", PROMPT, max_new_tokens=24),
        add("b", REPEATS, max_new_tokens=24),
        draft=Model(drift=100),
        curve=CostCurve(PassCurve(RISING), CHEAP),
    ),
    run(
        "adaptive, matches or the draft model, whichever promises more",
        add("a", REPEATS, max_new_tokens=40),
        draft=NEAR,
        drafter="both",
        curve=CURVE,
    ),
    run(
        "adaptive, matches that are declined",
        add("a", REPEATS, max_new_tokens=24),
        drafter="prompt-lookup",
        curve=CostCurve(PassCurve({1: 1.0, 2: 1.6, 8: 4.0, 16: 8.0})),
    ),
    run(
        "adaptive, one budget for four sequences",
        *(add(f"{i}", PROMPT[i:] + "x" * i, max_new_tokens=14) for i in range(4)),
        draft=NEAR,
        curve=CURVE,
    ),
    run(
        "adaptive, one budget beside a prompt that is read, and for matches",
        add("a", REPEATS, max_new_tokens=20),
        add("b", PROMPT, max_new_tokens=20),
        add("c", PROMPT[::-1], max_new_tokens=12, num_assistant_tokens=2),
        Step(4),
        add("d", PROMPT * 3, max_new_tokens=5),
        main=Model(max_length=256),
        draft=Model(drift=1, max_length=256),
        drafter="both",
        curve=CostCurve(SHAPES, CHEAP),
        prefill=16,
    ),
    run(
        "adaptive, where passes correct the costs",
        add("a", PROMPT, max_new_tokens=44),
        FINISH,
        add("b", REPEATS, max_new_tokens=16),
        main=Model(ticks=(1.0, 0.5)),
        draft=Model(drift=3, ticks=(1.0, 0.1)),
        curve=CostCurve(PassCurve({1: 1.0, 2: 1.05, 16: 1.8}), CHEAP),
        follows_clock=True,
    ),
    run(
        "adaptive, what one text teaches about the next",
        add("a", PROMPT, max_new_tokens=24),
        FINISH,
        add("b", REPEATS, max_new_tokens=16),
        FINISH,
        add("c", REPEATS, max_new_tokens=12, temperature=0.8, seed=3),
        draft=Model(drift=4),
        curve=CostCurve(PassCurve(RISING), CHEAP),
    ),
    run(
        "models that are compiled once more for a few sizes",
        add("a", PROMPT, max_new_tokens=20),
        add("b", REPEATS, max_new_tokens=10),
        main=Model(static_shapes=(2, 4, 8)),
        draft=Model(drift=1, static_shapes=(1, 2, 6)),
        drafter="both",
        curve=CURVE,
    ),
)
