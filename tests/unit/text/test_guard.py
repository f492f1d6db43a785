"""The tokenizer guard: each way in which two tokenizers can differ, on real tokenizers."""

import json

import pytest

from ov_specdec import TokenizerMismatchError
from ov_specdec.text.guard import compare_tokenizers
from ov_specdec.text.tokenizer import load_tokenizer
from tests.support.tiny import save_tokenizer


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(folder)
    return json.loads((folder / "tokenizer.json").read_text())


@pytest.fixture
def compare(spec, tmp_path):
    """Compare the tokenizer with a changed copy of it; the names of the checks that failed."""

    def run(change, main_width=400, draft_width=400):
        reports = []
        for role in ("main", "draft"):
            folder = tmp_path / role
            folder.mkdir()
            content = json.loads(json.dumps(spec))
            if role == "draft":
                change(content)
            (folder / "tokenizer.json").write_text(json.dumps(content))
            reports.append(load_tokenizer(folder))
        return compare_tokenizers(*reports, main_width=main_width, draft_width=draft_width)

    return run


def failed(report):
    return {name for name, found in report.checks.items() if found}


def nothing(spec):
    pass


def swap_two_tokens(spec):
    vocab = spec["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]


def add_token(spec):
    token = {"id": 999, "content": "<extra>", "special": True, "lstrip": False, "rstrip": False}
    spec["added_tokens"].append({**token, "single_word": False, "normalized": False})


def normalize(spec):
    spec["normalizer"] = {"type": "NFKC"}


def prefix_space(spec):
    spec["pre_tokenizer"]["add_prefix_space"] = True


def add_bos(spec):
    first = {"Sequence": {"id": "A", "type_id": 0}}
    spec["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<eos>", "type_id": 0}}, first],
        "pair": [first, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<eos>": {"id": "<eos>", "ids": [0], "tokens": ["<eos>"]}},
    }


def test_the_same_tokenizer_is_compatible(compare):
    report = compare(nothing)
    assert report.compatible
    assert all(line.endswith(": same") for line in report.lines())
    report.require()


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (swap_two_tokens, "vocabulary"),
        (lambda spec: spec["model"]["merges"].reverse(), "merges"),
        (lambda spec: spec["model"]["merges"].pop(), "merges"),
        (lambda spec: spec["model"].update(ignore_merges=True), "tokenizer model"),
        (add_token, "added and special tokens"),
        (lambda spec: spec["added_tokens"][0].update(special=False), "added and special tokens"),
        (normalize, "normalizer"),
        (prefix_space, "pre-tokenizer"),
        (add_bos, "post-processor"),
    ],
)
def test_each_difference_is_found_and_stops(compare, change, check):
    report = compare(change)
    assert check in failed(report)
    with pytest.raises(TokenizerMismatchError, match="different tokenizers"):
        report.require()


@pytest.mark.parametrize("change", [swap_two_tokens, normalize, prefix_space, add_bos])
def test_the_probe_texts_notice_what_changes_ids(compare, change):
    assert "encoding of probe texts" in failed(compare(change))


@pytest.mark.parametrize(
    ("main_width", "draft_width", "compatible"),
    [
        (290, 290, True),  # as wide as the tokenizer
        (320, 512, True),  # padded, each in its own way
        (512, 320, True),
        (280, 280, True),  # both lack the same last tokens
        (320, 280, False),  # the draft cannot read every token of the main
        (280, 320, False),
    ],
)
def test_logits_may_be_padded_but_not_cut(compare, main_width, draft_width, compatible):
    assert compare(nothing, main_width, draft_width).compatible is compatible
