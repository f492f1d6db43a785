"""Encoder-decoder models from text to text: what transformers makes of it, drafted or not."""

import json

import pytest

from ov_specdec import ModelError, OptionError, SpeculativePipeline, TokenizerMismatchError
from ov_specdec.errors import ContextLengthError
from ov_specdec.models.exported import open_exported
from ov_specdec.text.prompt import TextToText
from tests.support.folders import changed
from tests.support.server import serving
from tests.support.tiny import EOS
from tests.support.tiny_encoder_decoder import NUM_TOKENS, SOURCES, START, TEXT, reference

LENGTH = {"max_new_tokens": NUM_TOKENS}


@pytest.fixture(scope="module")
def bart(encoder_decoder):
    return encoder_decoder("bart")


@pytest.fixture(scope="module")
def pipeline(bart):
    with SpeculativePipeline(bart.main, bart.draft, precision="exact") as pipeline:
        yield pipeline


@pytest.fixture(scope="module")
def pegasus(encoder_decoder):
    """Its outputs repeat themselves."""
    made = encoder_decoder("pegasus")
    with SpeculativePipeline(made.main, made.draft, drafter="both", precision="exact") as pipeline:
        yield made, pipeline


def outputs(pipeline, source, lengths=(0, 1, 4), **options):
    """What a pipeline makes of a source, plain and with drafts of several lengths."""
    return [
        pipeline.generate(source, num_assistant_tokens=length, **LENGTH, **options)
        for length in lengths
    ]


@pytest.mark.parametrize("drafter", ["model", "suffix", "prompt-lookup"])
@pytest.mark.parametrize(
    "architecture",
    [pytest.param(n, marks=[] if n in ("t5", "pegasus") else pytest.mark.deep) for n in TEXT],
)
def test_speculative_is_plain_is_what_transformers_generates(
    encoder_decoder, architecture, drafter
):
    made = encoder_decoder(architecture)
    draft = made.draft if drafter == "model" else None
    accepted = drafted = 0
    with SpeculativePipeline(made.main, draft, drafter=drafter, precision="exact") as pipeline:
        assert pipeline.main.kv == "stateful"
        for source, expected in zip(SOURCES, made.expected, strict=True):
            for result in outputs(pipeline, source, (0, 1, 4, "auto")):
                assert result.token_ids == expected
                assert result.stats.prompt_tokens == len(source)
                accepted += result.stats.accepted
                drafted += result.stats.drafted
    assert drafted > 0
    assert drafter != "model" or 0 < accepted < drafted, "all or nothing was accepted"


@pytest.mark.parametrize(
    "options",
    [
        {"no_repeat_ngram_size": 2},
        {"encoder_no_repeat_ngram_size": 1},
        {"forced_bos_token_id": 57},
        {"repetition_penalty": 1.8},
        {"eos_token_id": 163, "min_new_tokens": 10},
        {"forced_bos_token_id": 57, "no_repeat_ngram_size": 1, "encoder_no_repeat_ngram_size": 2},
    ],
    ids=lambda options: "-".join(options),
)
def test_options_mean_what_they_do_in_transformers(pegasus, options):
    made, pipeline = pegasus
    source = [*SOURCES[0], *made.expected[0][:20]]  # n-grams of the output are in it
    expected = reference(made.checkpoint, source, **options)
    plain = pipeline.generate(source, num_assistant_tokens=0, **LENGTH)
    assert plain.token_ids != expected, "it had no effect"
    for result in outputs(pipeline, source, **options):
        assert result.token_ids == expected


@pytest.mark.parametrize("drafter", ["suffix", "prompt-lookup"])
def test_a_source_that_the_output_quotes_is_drafted_from(bart, drafter):
    text = list(range(100, 100 + NUM_TOKENS))

    def quote(tokens, row):
        row[text[len(tokens) - 1]] += 1000.0
        return row

    with SpeculativePipeline(bart.main, drafter=drafter) as pipeline:
        options = {"logits_processor": [quote], "num_assistant_tokens": 4, **LENGTH}
        result = pipeline.generate(text, **options)
        assert result.token_ids == text
        assert result.stats.accepted > NUM_TOKENS / 2
        # Nothing else repeats, so that there is nothing to draft where the source is another.
        assert pipeline.generate([5], cache_salt="new", **options).stats.drafted == 0


def test_the_server_completes(pipeline):
    text = "def area("
    expected = pipeline.generate(text, max_new_tokens=8)
    with serving(pipeline) as server:
        answer = server.complete([text, text], max_tokens=8)
        assert [choice["text"] for choice in answer["choices"]] == [expected.text] * 2
        assert answer["usage"]["prompt_tokens"] == 2 * expected.stats.prompt_tokens
        refused = server.post("/v1/completions", prompt=text, echo=True, logprobs=1)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "echo")


def test_the_models_own_first_token_and_a_language(bart, tmp_path):
    spec = json.loads((bart.main / "tokenizer.json").read_text())
    added = [*spec["added_tokens"], {**spec["added_tokens"][0], "id": 290, "content": "fra_Latn"}]
    folder = changed(
        bart.main,
        tmp_path / "main",
        generation_config={"forced_bos_token_id": 57},
        tokenizer={"added_tokens": added},
    )
    with SpeculativePipeline(folder, drafter="suffix") as pipeline:
        begins = [
            pipeline.generate(SOURCES[0], max_new_tokens=3, **options).token_ids[0]
            for options in ({}, {"forced_bos_token_id": 58}, {"tgt_lang": "fra_Latn"})
        ]
        assert begins == [57, 58, 290]
        with pytest.raises(OptionError, match=r"'fra_Lat' is not known.*did you mean fra_Latn"):
            pipeline.generate(SOURCES[0], tgt_lang="fra_Lat")
        with pytest.raises(OptionError, match="contradicts forced_bos_token_id=3"):
            pipeline.generate(SOURCES[0], tgt_lang="fra_Latn", forced_bos_token_id=3)


LANGUAGES = {"eng_Latn": 288, "fra_Latn": 289}
TEMPLATE = [
    {"SpecialToken": {"id": "eng_Latn", "type_id": 0}},
    {"Sequence": {"id": "A", "type_id": 0}},
    {"SpecialToken": {"id": EOS, "type_id": 0}},
]
"""What NLLB puts around a text."""


@pytest.fixture(scope="module")
def translator(bart, tmp_path_factory):
    """A pipeline whose tokenizer tells the model the language of the source."""
    spec = json.loads((bart.main / "tokenizer.json").read_text())
    ids = {EOS: 0, **LANGUAGES}
    vocab = {k: v for k, v in spec["model"]["vocab"].items() if v not in LANGUAGES.values()}
    merges = [pair for pair in spec["model"]["merges"] if "".join(pair) in vocab]
    [end] = spec["added_tokens"]
    tokenizer = {
        "added_tokens": [{**end, "id": token, "content": name} for name, token in ids.items()],
        "model": {**spec["model"], "vocab": {**vocab, **LANGUAGES}, "merges": merges},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": TEMPLATE,
            "pair": TEMPLATE,
            "special_tokens": {k: {"id": k, "ids": [v], "tokens": [k]} for k, v in ids.items()},
        },
    }
    folder = changed(bart.main, tmp_path_factory.mktemp("nllb") / "main", tokenizer=tokenizer)
    with SpeculativePipeline(folder, drafter="suffix", precision="exact") as pipeline:
        yield pipeline


def test_the_language_of_the_source(translator, pipeline):
    text = "def area("
    english, french = (translator.tokenizer.encode(text, name) for name in (None, "fra_Latn"))
    assert (english[0], english[-1], french) == (288, 0, [289, *english[1:]])
    # A language in the text itself is not the source's.
    assert translator.tokenizer.encode("eng_Latn", "fra_Latn") == [289, 288, 0]
    made = translator.generate(text, src_lang="fra_Latn", max_new_tokens=8)
    assert made.token_ids == translator.generate(french, max_new_tokens=8).token_ids
    assert made.token_ids != translator.generate(text, max_new_tokens=8).token_ids
    with pytest.raises(
        OptionError, match=r"src_lang='fra_Lat' is not known.*did you mean fra_Latn"
    ):
        translator.generate(text, src_lang="fra_Lat")
    with pytest.raises(OptionError, match=r"'</s>' is not known.*: there are: eng_Latn"):
        translator.generate(text, tgt_lang="</s>")
    with pytest.raises(OptionError, match=r"src_lang='fra_Latn' has no effect on .* token ids"):
        translator.generate([5], src_lang="fra_Latn")
    with pytest.raises(OptionError, match="marks no source language"):
        pipeline.generate(text, src_lang="fra_Latn")


def test_what_an_encoder_decoder_cannot_do_is_an_error(pipeline, tmp_path):
    with pytest.raises(ContextLengthError, match=r"length is 128 tokens\. .* with 129 tokens:"):
        pipeline.generate([5] * 129)
    with pytest.raises(OptionError, match="prompt_logprobs=0 cannot be given"):
        pipeline.generate([5], prompt_logprobs=0)
    with pytest.raises(OptionError, match="token id 290"):
        pipeline.generate([290])
    with pytest.raises(OptionError, match="prompt is empty"):
        pipeline.generate([])
    pipeline.generate([5], max_new_tokens=1)
    for use in (pipeline.save_cache, pipeline.load_cache):
        with pytest.raises(OptionError, match="an encoder-decoder model, cannot be saved"):
            use(tmp_path / "cache.safetensors")


def test_two_kinds_of_models_are_no_pair(bart, tiny_pair, tmp_path):
    with pytest.raises(ModelError, match=r"is an encoder-decoder model, draft .* a decoder: give"):
        SpeculativePipeline(bart.main, tiny_pair[1])
    with pytest.raises(ModelError, match=r"is a decoder, draft .* an encoder-decoder model: give"):
        SpeculativePipeline(tiny_pair[0], bart.draft)
    other = changed(bart.draft, tmp_path / "draft", tokenizer={"normalizer": {"type": "NFC"}})
    with pytest.raises(TokenizerMismatchError, match="normalizer"):
        SpeculativePipeline(bart.main, other)
    with pytest.raises(TokenizerMismatchError, match="cannot be paired"):
        SpeculativePipeline(bart.main, other, pairing="auto")


def test_models_that_say_too_little_or_read_no_text_are_refused(bart, whisper, tmp_path):
    nothing = {"decoder_start_token_id": None, "bos_token_id": None}
    folder = changed(bart.main, tmp_path / "a", generation_config=nothing, config=nothing)
    with pytest.raises(ModelError, match="names no decoder_start_token_id"):
        SpeculativePipeline(folder, drafter="none")
    with pytest.raises(ModelError, match="reads input_features, not texts"):
        SpeculativePipeline(whisper.main, drafter="none")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"no tokenizer.json"):
        SpeculativePipeline(folder, drafter="none")


def test_start_tokens_are_read_as_transformers_reads_them(bart, tmp_path):
    assert open_exported(bart.main).text_to_text() == TextToText(START)
    nothing = {"decoder_start_token_id": None, "bos_token_id": 3}
    folder = changed(bart.main, tmp_path / "a", generation_config=nothing, config=nothing)
    assert open_exported(folder).text_to_text() == TextToText(3)
    folder = changed(bart.main, tmp_path / "b", generation_config={"decoder_start_token_id": [2]})
    with pytest.raises(ModelError, match=r"gives decoder_start_token_id as \[2\]"):
        open_exported(folder)
