"""Encoder-decoder models from text to text: what transformers makes of it, drafted or not."""

import json
import shutil

import pytest

from ov_specdec import ModelError, OptionError, SpeculativePipeline, TokenizerMismatchError
from ov_specdec.errors import ContextLengthError
from ov_specdec.models.folder import DEFAULT_CONTEXT
from ov_specdec.models.source import check_pair, open_source, pair_tokenizers
from ov_specdec.text.prompt import TextToText
from ov_specdec.text.tokenizer import load_tokenizer
from tests.support.command_line import run
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


def compare_with_transformers(made, draft, lengths, **settings):
    """Outputs are those of transformers; the draft tokens that were accepted and proposed."""
    accepted = drafted = 0
    with SpeculativePipeline(made.main, draft, precision="exact", **settings) as pipeline:
        assert pipeline.main.kv == "stateful"
        for source, expected in zip(SOURCES, made.expected, strict=True):
            for result in outputs(pipeline, source, lengths):
                assert result.token_ids == expected
                assert result.stats.prompt_tokens == len(source)
                accepted += result.stats.accepted
                drafted += result.stats.drafted
    return accepted, drafted


@pytest.mark.parametrize(
    "architecture",
    [pytest.param(n, marks=pytest.mark.deep if n in ("mbart", "m2m_100") else []) for n in TEXT],
)
def test_speculative_is_plain_is_what_transformers_generates(encoder_decoder, architecture):
    made = encoder_decoder(architecture)
    accepted, drafted = compare_with_transformers(made, made.draft, (0, 1, 4, "auto"))
    assert 0 < accepted < drafted, "nothing was rejected, or nothing accepted"


@pytest.mark.parametrize("drafter", ["suffix", "prompt-lookup"])
@pytest.mark.parametrize(
    "architecture", ["t5", *(pytest.param(name, marks=pytest.mark.deep) for name in TEXT[1:])]
)
def test_so_it_is_with_drafts_from_the_text(encoder_decoder, architecture, drafter):
    made = encoder_decoder(architecture)
    assert compare_with_transformers(made, None, (0, 4), drafter=drafter)[1] > 0


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


def test_streams_batches_and_texts_give_the_same(bart, pipeline):
    text = "def area(width, height):"
    ids = load_tokenizer(bart.main).encode(text)
    result = pipeline.generate(text, **LENGTH)
    assert result.token_ids == pipeline.generate(ids, **LENGTH).token_ids
    chunks = list(pipeline.stream(text, **LENGTH))
    assert "".join(chunk.text for chunk in chunks) == result.text
    prompts = [text, SOURCES[0], SOURCES[1], SOURCES[0], text]
    batch = pipeline.generate_batch(
        prompts, [{"cache_salt": str(i % 2)} for i in range(5)], **LENGTH
    )
    expected = [result.token_ids, *bart.expected, bart.expected[0], result.token_ids]
    assert [each.token_ids for each in batch] == expected


def test_streams_that_wait_for_their_readers_go_on_where_they_were(bart, pipeline):
    streams = [pipeline.stream(source, max_new_tokens=100) for source in SOURCES]
    expected = [pipeline.generate(source, max_new_tokens=100).token_ids for source in SOURCES]
    found = [[], []]
    for chunks in zip(*streams, strict=False):
        for ids, chunk in zip(found, chunks, strict=True):
            ids += chunk.token_ids
    for ids, stream in zip(found, streams, strict=True):
        ids += [token for chunk in stream for token in chunk.token_ids]
    assert found == expected


def test_a_sampled_text_is_the_same_again(pipeline):
    options = {"temperature": 1.0, "seed": 3, **LENGTH}
    first, second = (pipeline.generate(SOURCES[0], **options) for _ in range(2))
    assert first.token_ids == second.token_ids != pipeline.generate(SOURCES[0], **LENGTH).token_ids
    assert first.stats.accepted > 0


def test_the_command_line_generates_and_compares(bart, pipeline):
    text, models = "def area(", ("--main", bart.main, "--draft", bart.draft, "--precision", "exact")
    options = ("--max-new-tokens", 8, "--forced-bos-token-id", 57, "--json")
    done = run("generate", text, *models, *options, "--encoder-device", "CPU")
    assert (done.returncode, done.stderr) == (0, "")
    expected = pipeline.generate(text, max_new_tokens=8, forced_bos_token_id=57)
    assert json.loads(done.stdout)["token_ids"] == expected.token_ids
    compared = run("compare", text, *models, *options)
    assert json.loads(compared.stdout)["equal"] is True
    checked = run("check", bart.main, bart.draft)
    assert checked.stdout.endswith(
        "\ncompatible\nbatch invariant: off (an encoder-decoder model)\n"
    )


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("tune", "MAIN", "DRAFT"), "no profile is made for encoder-decoder models"),
        (("generate", "x", "--main", "MAIN", "--draft", "DRAFT", "--kv", "paged"), "--kv paged"),
        (("chat", "--main", "MAIN", "--draft", "DRAFT"), "has no chat template"),
    ],
)
def test_commands_that_cannot_say_so_in_one_line(bart, command, message):
    folders = {"MAIN": bart.main, "DRAFT": bart.draft}
    done = run(*(folders.get(part, part) for part in command))
    assert done.returncode != 0
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_server_completes(pipeline):
    text = "def area("
    expected = pipeline.generate(text, max_new_tokens=8)
    with serving(pipeline) as server:
        answer = server.complete([text, text], max_tokens=8)
        assert [choice["text"] for choice in answer["choices"]] == [expected.text] * 2
        assert answer["usage"]["prompt_tokens"] == 2 * expected.stats.prompt_tokens
        refused = server.post("/v1/completions", prompt=text, echo=True, logprobs=1)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "echo")


def changed(folder, target, **files):
    """A copy of a model folder, with entries of its JSON files changed; None takes one away."""
    shutil.copytree(folder, target)
    for name, entries in files.items():
        path = target / f"{name}.json"
        content = {**json.loads(path.read_text()), **entries}
        path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
    return target


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


def test_the_server_translates(translator):
    expected = translator.generate("def area(", src_lang="fra_Latn", max_new_tokens=8)
    given = {"prompt": "def area(", "src_lang": "fra_Latn", "max_tokens": 8}
    with serving(translator) as server:
        assert server.complete(**given)["choices"][0]["text"] == expected.text
        begun = server.complete(tgt_lang="fra_Latn", logprobs=0, **given)
        assert begun["choices"][0]["logprobs"]["tokens"][0] == "fra_Latn"
        refused = server.post("/v1/completions", prompt="x", tgt_lang="fra")
        assert (refused.status_code, "not known" in refused.text) == (400, True)


def test_relative_positions_have_no_end(encoder_decoder, tmp_path):
    folder = changed(encoder_decoder("t5").main, tmp_path / "t5", config={"n_positions": 512})
    assert open_source(folder).folder.context_length == DEFAULT_CONTEXT


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


def test_pairs_of_different_kinds_are_refused(bart, tiny_pair):
    with pytest.raises(ModelError, match=r"is an encoder-decoder model, draft .* a decoder: give"):
        SpeculativePipeline(bart.main, tiny_pair[1])
    with pytest.raises(ModelError, match=r"is a decoder, draft .* an encoder-decoder model: give"):
        SpeculativePipeline(tiny_pair[0], bart.draft)


@pytest.mark.parametrize("name", ["src_lang", "tgt_lang"])
def test_a_language_is_for_encoder_decoders(tiny_pair, name):
    pipeline = SpeculativePipeline(tiny_pair[0], drafter="none")
    with pytest.raises(OptionError, match=f"{name}='fra_Latn' needs an encoder-decoder"):
        pipeline.generate("x", **{name: "fra_Latn"})


def test_drafts_with_other_tokenizers_are_refused_pairing_or_not(bart, tmp_path):
    spec = json.loads((bart.main / "tokenizer.json").read_text())
    other = changed(bart.draft, tmp_path / "draft", tokenizer={"normalizer": {"type": "NFC"}})
    assert spec["normalizer"] is None
    with pytest.raises(TokenizerMismatchError, match="normalizer"):
        SpeculativePipeline(bart.main, other)
    with pytest.raises(TokenizerMismatchError, match="cannot be paired"):
        SpeculativePipeline(bart.main, other, pairing="auto")


def test_models_that_say_too_little_or_read_no_text_are_refused(bart, encoder_decoder, tmp_path):
    nothing = {"decoder_start_token_id": None, "bos_token_id": None}
    folder = changed(bart.main, tmp_path / "a", generation_config=nothing, config=nothing)
    with pytest.raises(ModelError, match="names no decoder_start_token_id"):
        SpeculativePipeline(folder, drafter="none")
    with pytest.raises(ModelError, match="reads input_features, not texts"):
        SpeculativePipeline(encoder_decoder("whisper").main, drafter="none")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"no tokenizer.json"):
        SpeculativePipeline(folder, drafter="none")


def test_start_tokens_are_read_as_transformers_reads_them(bart, tmp_path):
    assert open_source(bart.main).text_to_text() == TextToText(START)
    nothing = {"decoder_start_token_id": None, "bos_token_id": 3}
    folder = changed(bart.main, tmp_path / "a", generation_config=nothing, config=nothing)
    assert open_source(folder).text_to_text() == TextToText(3)
    folder = changed(bart.main, tmp_path / "b", generation_config={"decoder_start_token_id": [2]})
    with pytest.raises(ModelError, match=r"gives decoder_start_token_id as \[2\]"):
        open_source(folder)
    assert check_pair(open_source(bart.main), open_source(bart.draft)).compatible
    with pytest.raises(TokenizerMismatchError, match="cannot be paired"):
        pair_tokenizers(open_source(bart.main), open_source(bart.draft))
