"""Measures and chooses the settings of a pair."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ov_specdec.drafters.base import Drafter
from ov_specdec.drafters.pairing import DraftModel
from ov_specdec.engine import Engine
from ov_specdec.engine import Sequence as EngineSequence
from ov_specdec.errors import OptionError
from ov_specdec.loading.compile import LoadedModel, load_model
from ov_specdec.loading.devices import (
    PRECISION_PROPERTIES,
    computes_in,
    describe_machine,
    find_device,
    openvino_core,
    usable_cores,
)
from ov_specdec.loading.invariance import configure
from ov_specdec.loading.profile import Profile, fingerprint
from ov_specdec.loading.runtime_config import RuntimeConfig
from ov_specdec.loading.source import open_source
from ov_specdec.pipeline_models import pair_models
from ov_specdec.planning.acceptance import MODEL, Acceptance, SharedCounts
from ov_specdec.planning.costs import CostCurve, FixedCurve, PassCurve, Role
from ov_specdec.planning.costs.curve import ROWS
from ov_specdec.planning.draft_length import Bid, ConstantLength
from ov_specdec.planning.planner import Load, Planner
from ov_specdec.runner.base import Runner
from ov_specdec.runner.cached_sequence import CachedSequence, alone
from ov_specdec.sampling.samplers import GreedySampler
from ov_specdec.text.pairing import PairingName
from ov_specdec.tuning.budget import Budget
from ov_specdec.tuning.passes import PassCosts, measure_passes
from ov_specdec.tuning.search import (
    CHOICES,
    PRECISION_HINT,
    Found,
    Properties,
    Refused,
    Trial,
    search,
)
from ov_specdec.tuning.weigh import weigh

PROMPTS = (
    "def read_json(path):\n",
    "class Queue:\n    def __init__(self):\n",
    "Once upon a time, there was a",
    "The difference between a list and a tuple is",
)
NUM_TOKENS = 32
"""Output tokens for each prompt, to measure acceptance and agreement with exact precision."""

DRAFT_LENGTH = 8
CHECKED_AT_ONCE = 8
"""Tokens in a pass that compares greedy choices with those of exact precision."""

SEARCH_SHARE = 0.5
"""Fraction of the time for settings; the rest is for drafters."""

DRAFT_SHARE = 0.4
"""Fraction of that for the draft model's settings."""


@dataclass(frozen=True)
class Tuning:
    """The measured and chosen settings.

    changed: fraction of tokens for which greedy decoding with the profile chooses another token
    than in `exact`. reasons: for the settings of each model. invariance: whether the main model's
    passes are batch-invariant.
    """

    profile: Profile
    changed: float
    reasons: dict[Role, str]
    invariance: str


def expected_speed(main: PassCosts, draft_step: float, acceptance: float) -> float:
    """Tokens per second with the best draft length.

    acceptance: probability that a draft token is accepted if all before it were.
    """
    curve = CostCurve(PassCurve({ROWS[0]: main.seconds}), PassCurve({ROWS[0]: {1: draft_step}}))
    [plan] = Planner(FixedCurve(curve)).plan([Bid(MODEL, None, acceptance)], Load())
    tokens = sum(acceptance**n for n in range(plan.length + 1))
    return tokens / (curve.main.at(plan.length + 1, ROWS[0]) + plan.length * draft_step)


class Tuner:
    """Measures one pair on one device. Compiles a model again for each trial.

    budget: of which it uses a fraction. note: called with the role of the model and every trial.
    pairing: of a draft with another tokenizer.
    """

    def __init__(
        self,
        main: Path,
        draft: Path,
        device: str,
        *,
        budget: Budget,
        note: Callable[[Role, Trial | Refused], None],
        pairing: PairingName | None = None,
    ) -> None:
        self._paths: dict[Role, Path] = {"main": main, "draft": draft}
        self._device = device
        self._note = note
        self._budget = budget
        sources = open_source(main), open_source(draft)
        if sources[0].folder.is_encoder_decoder:
            raise OptionError(
                f"no profile is made for encoder-decoder models such as '{main}': leave out DRAFT, "
                f"and compare drafters with --other-draft {draft}"
            )
        self._folder = sources[0].folder
        _, self._pairing = pair_models(sources, pairing)
        roles: tuple[Role, Role] = ("main", "draft")
        self._tokens = {
            role: source.tokenizer.encode(PROMPTS[0])[0]
            for role, source in zip(roles, sources, strict=True)
        }
        self._prompts = [sources[0].tokenizer.encode(prompt) for prompt in PROMPTS]
        self._machine = describe_machine(device)
        self.pair = fingerprint(
            sources[0].folder, sources[1].folder, self._machine, RuntimeConfig.kv
        )
        """The models, device and versions that the profile applies to."""

    def run(self) -> Tuning:
        """Measure everything. `DeviceError` if the device refuses even its defaults."""
        texts = self._write_exactly()
        writing = self._budget.spent
        acceptance = self._measure_acceptance()
        # Comparing settings on these texts takes about as long as generating them.
        left = SEARCH_SHARE * self._budget.seconds - self._budget.spent - writing
        drafts = self._search("draft", lambda costs: costs.seconds[1], DRAFT_SHARE * left)
        step = drafts.best.costs.seconds[1]
        mains = self._search(
            "main",
            lambda costs: 1 / expected_speed(costs, step, acceptance),
            (1.0 - DRAFT_SHARE) * left,
        )
        best_main, invariance = weigh(
            self._folder,
            RuntimeConfig(self._device),
            mains.best,
            lambda properties: self._measure("main", properties),
            lambda costs: expected_speed(costs, step, acceptance),
        )
        changed = self._compare(best_main.properties, texts)
        report = {
            "machine": self._machine,
            "models": {role: str(path) for role, path in self._paths.items()},
            "other_token_than_exact": changed,
            "batch_invariant": invariance,
            "main_pass_seconds": dict(best_main.costs.seconds),
            "draft_pass_seconds": dict(drafts.best.costs.seconds),
        }
        best = dict(best_main.properties), dict(drafts.best.properties)
        profile = Profile(self.pair, *best, report)
        reasons: dict[Role, str] = {"main": mains.reason(), "draft": drafts.reason()}
        return Tuning(profile, changed, reasons, invariance)

    def _search(self, role: Role, score: Callable[[PassCosts], float], seconds: float) -> Found:
        """Search one model's settings, while another trial fits into the time."""
        end, longest = self._budget.spent + seconds, 0.0

        def measure(properties: Properties) -> PassCosts:
            nonlocal longest
            start = self._budget.spent
            costs = self._measure(role, properties)
            longest = max(longest, self._budget.spent - start)
            return costs

        return search(
            measure,
            score,
            offered(self._device),
            # Twice more, because the result is measured again.
            lambda: self._budget.spent + 3 * longest < end,
            lambda trial: self._note(role, trial),
        )

    def _measure(self, role: Role, properties: Properties) -> PassCosts:
        return measure_passes(self._load(role, properties).runner, self._tokens[role])

    def _load(self, role: Role, properties: Properties) -> LoadedModel:
        with self._budget.load():
            config = self._config(role, properties)
            source = open_source(self._paths[role])
            return load_model(source, config, vocab_size=source.vocab_size)

    def _config(self, role: Role, properties: Properties) -> RuntimeConfig:
        """The configuration of a trial; the main model's passes have the form of later runs."""
        config = RuntimeConfig(self._device, properties=properties)
        if role == "draft":
            return config
        return configure("auto", self._folder, config, ())[0]

    def _write_exactly(self) -> list[list[int]]:
        """Prompts with their plain greedy outputs in `exact` precision."""
        main = self._load("main", PRECISION_PROPERTIES["exact"]).runner
        texts = list[list[int]]()
        for prompt in self._prompts:
            text = self._sequence(prompt, main)
            deque(Engine(main).run(text), maxlen=0)
            texts.append(text.tokens)
        return texts

    @staticmethod
    def _sequence(
        prompt: list[int], main: Runner, drafter: Drafter | None = None
    ) -> EngineSequence:
        """A greedy sequence that leaves nothing in the prefix cache."""
        length = min(len(prompt) + NUM_TOKENS, main.max_length)
        policy = ConstantLength(DRAFT_LENGTH)
        cache = CachedSequence(main)
        return EngineSequence(
            prompt.copy(), length, cache, GreedySampler(), drafter, policy, keeps_cache=False
        )

    def _compare(self, properties: Properties, texts: Sequence[Sequence[int]]) -> float:
        """The fraction of tokens that these settings choose differently from `exact`."""
        main = self._load("main", properties).runner
        other = total = 0
        for prompt, text in zip(self._prompts, texts, strict=True):
            cache = CachedSequence(main)
            choices = list[int]()
            for place in range(len(prompt), len(text), CHECKED_AT_ONCE):
                given = text[place : min(place + CHECKED_AT_ONCE - 1, len(text) - 1)]
                logits = alone(cache.advance(text[:place], given)).logits
                choices += logits.argmax(axis=1).tolist()
            cache.discard()
            exact = text[len(prompt) :]
            other += sum(a != b for a, b in zip(choices, exact, strict=True))
            total += len(exact)
        return other / total

    def _measure_acceptance(self) -> float:
        """Acceptance of draft tokens, given those before, over the sample prompts."""
        acceptance = Acceptance(SharedCounts())
        main, draft = self._load("main", {}).runner, self._load("draft", {}).runner
        for prompt in self._prompts:
            drafter = DraftModel(draft, self._pairing).make(GreedySampler())
            for round_ in Engine(main, draft).run(self._sequence(prompt, main, drafter)):
                acceptance.learn(round_.stats)
        return acceptance.rate(MODEL, None)


def offered(device: str) -> dict[str, tuple[str, ...]]:
    """`CHOICES` and threads, without precisions that the device does not support.

    Off the CPU the KV cache has the inference precision, because 8 bits are not exact there.
    """
    precisions = [name for name in CHOICES[PRECISION_HINT] if computes_in(device, name)]
    choices = {**CHOICES, PRECISION_HINT: tuple(precisions)}
    if find_device(openvino_core(), device).is_cpu:
        return {**choices, **thread_choices()}
    del choices["KV_CACHE_PRECISION"]
    return choices


def thread_choices() -> dict[str, tuple[str, ...]]:
    """Half and a quarter of the available cores: a small model may be faster on fewer."""
    cores = usable_cores()
    numbers = {cores // 2, cores // 4} - {0, cores}
    return {"INFERENCE_NUM_THREADS": tuple(str(n) for n in sorted(numbers, reverse=True))}
