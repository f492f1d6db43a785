"""What the commands print, and every way to give them their input."""

import json
import re
import shutil
from dataclasses import replace

import pytest

from ov_specdec.measure.properties import Tuner
from ov_specdec.text.tokenizer import load_tokenizer
from tests.support.chats import TEMPLATES
from tests.support.command_line import run
from tests.support.gains import always
from tests.support.tiny import save_tokenizer


@pytest.fixture(scope="module")
def pair(tiny_pair):
    return ("--main", tiny_pair[0], "--draft", tiny_pair[1], "--precision", "exact")


@pytest.fixture(scope="module")
def alone(tiny_pair):
    """A main model without a draft: what loads fastest."""
    return ("--main", tiny_pair[0], "--drafter", "none", "--precision", "exact")


def test_generate_prints_the_text_and_one_line_of_statistics(pair):
    done = run("generate", "def fibonacci(n):", "--max-new-tokens", 24)
    assert done.returncode == 0
    assert len(done.stdout) > 10
    figures, end = done.stderr.splitlines()
    assert re.match(r"\d+ tokens/s, .* tokens per pass$", figures)
    assert end == "cut after 24 tokens by --max-new-tokens"
    assert len(figures) <= 100
    rest = run("generate", "def", *pair, "--max-new-tokens", 2, "--verbose").stderr
    assert "KV cache       paged" in rest


def test_generate_json_is_one_object_and_nothing_else(pair):
    drafts = ("--num-assistant-tokens", 3)
    options = (*drafts, "--json", "--max-new-tokens", 20, "--ignore-eos")
    done = run("generate", "def area(", *pair, *options)
    assert done.returncode == 0
    assert done.stderr == ""
    content = json.loads(done.stdout)
    counts = ("prompt_tokens", "cached_tokens", "generated_tokens")
    assert set(content) == {"text", "token_ids", *counts, "finish_reason", "stats"}
    assert content["generated_tokens"] == len(content["token_ids"]) == 20
    assert content["finish_reason"] == "length"
    assert content["stats"]["drafted"] > 0


def test_the_prompt_may_come_from_a_file_or_else_from_stdin(alone, tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_text("def größe(", encoding="utf-8")
    options = (*alone, "--max-new-tokens", 8, "--json")
    by_argument = run("generate", "def größe(", *options)
    by_file = run("generate", "--prompt-file", file, *options)
    by_stdin = run(
        "generate", "--prompt-file", "-", *options, stdin="def größe(".encode("utf-8-sig")
    )
    piped = run("generate", *options, stdin="def größe(".encode())
    beside = run("generate", "def größe(", *options, stdin=b"import re and more")
    ways = (by_argument, by_file, by_stdin, piped, beside)
    assert len({json.loads(done.stdout)["text"] for done in ways}) == 1


def test_the_options_of_a_chat_reach_the_template(tiny_pair, tmp_path):
    main = shutil.copytree(tiny_pair[0], tmp_path / "main")
    (main / "chat_template.jinja").write_text(TEMPLATES["tools"])
    tools = tmp_path / "tools.json"
    tools.write_text('[{"name": "area"}]')
    options = ("--main", main, "--drafter", "none", "--max-new-tokens", 2, "--json")

    def prompt_tokens(*more):
        done = run("generate", "Hello", *options, *more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["prompt_tokens"]

    encode = load_tokenizer(main).encode
    plain = prompt_tokens()
    system = encode("<eos>system\nBe brief.<eos>\n")
    assert prompt_tokens("--system", "Be brief.") == plain + len(system)
    unread = ("--tools", tools, "--tool-call-parser", "none")  # the template writes no calls
    assert prompt_tokens(*unread) == plain + len(encode('{"name": "area"}\n'))
    thinking = ("--chat-template-kwargs", '{"enable_thinking": false}')
    assert prompt_tokens(*thinking) == plain + len(encode("<think></think>"))


def test_compare_says_whether_both_texts_are_equal_and_which_was_faster(pair):
    options = (*pair, "--max-new-tokens", 20, "--ignore-eos", "--repeat", 2)
    options += ("--num-assistant-tokens", 4)  # by itself it would see that this draft does not pay
    done = run("compare", "def area(", *options, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["equal"] is True
    assert report["plain"]["text"] == report["speculative"]["text"]
    assert report["plain"]["stats"]["drafted"] == 0 < report["speculative"]["stats"]["drafted"]
    assert min(report["ratios"]) <= report["ratio"] <= max(report["ratios"])
    assert len(report["ratios"]) == 2

    drawn = json.loads(run("compare", "def area(", *options, "--temperature", 5, "--json").stdout)
    assert drawn["sampled"] is not drawn["equal"]

    done = run("compare", "def area(", *options)
    assert "equal        yes, token for token" in done.stdout
    assert re.search(r"ratio        \d+\.\d\d \(\d", done.stdout)


def test_check_tells_compatible_from_not_by_its_exit_code(tiny_pair, tmp_path):
    same = run("check", *tiny_pair)
    assert same.returncode == 0
    assert "\ncompatible\nbatch invariant: o" in same.stdout  # on or off, by the machine

    other = shutil.copytree(tiny_pair[1], tmp_path / "other")
    save_tokenizer(other, sample="another text altogether, so other merges")
    different = run("check", tiny_pair[0], other)
    assert different.returncode == 1
    assert re.search(r"merges: \d+ difference", different.stdout)
    assert "\nnot compatible\ncommon tokens: " in different.stdout
    assert "\npairings: intersection, retokenize; auto is " in different.stdout
    assert run("check", tiny_pair[0], "nowhere").returncode == 2


def test_what_check_has_seen_is_kept_for_devices(tiny_pair, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before, checked, after = (
        run(command, tiny_pair[0]) for command in ("devices", "check", "devices")
    )
    assert "batch invariant on (not checked yet on this machine" in before.stdout
    assert re.match(
        r"batch invariant: (on|off) \(.*\)\nKV caches: paged and stateful agree", checked.stdout
    )
    assert checked.returncode == 0
    assert checked.stdout.splitlines()[0].partition(": ")[2] in after.stdout


def test_a_console_that_cannot_show_a_character_shows_a_question_mark(alone):
    options = ("generate", "def area(", *alone, "--ignore-eos", "--max-new-tokens", 60)
    text = run(*options).stdout
    shown = run(*options, encoding="cp1252")
    assert shown.returncode == 0, shown.stderr
    assert "\ufffd" in text  # what random models write is no text
    assert shown.stdout == text.encode("cp1252", errors="replace").decode("cp1252")
    exact = run(*options, "--json", encoding="cp1252")
    assert json.loads(exact.stdout)["text"] + "\n" == text


def test_tune_has_an_effect_on_later_runs(tiny_pair, tmp_path, monkeypatch):
    here = {"env": {"XDG_CACHE_HOME": tmp_path}}
    models = ("--main", tiny_pair[0], "--draft", tiny_pair[1])
    few = ("--max-new-tokens", 2)
    all_ = (*few, "--verbose")
    assert "profile" not in run("generate", "x", *models, *all_, **here).stderr

    monkeypatch.setattr("ov_specdec.measure.drafters.measure_gain", lambda *_: always(1.5))
    search = Tuner.run

    def find_one(tuner):
        profile, found = search(tuner)
        return replace(profile, main_properties={"INFERENCE_PRECISION_HINT": "f32"}), found

    monkeypatch.setattr(Tuner, "run", find_one)
    done = run("tune", *tiny_pair, "--seconds", 1, **here)
    assert done.returncode == 0, done.stderr
    (profile,) = [
        path for path in tmp_path.rglob("records/*.json") if '"profile"' in path.read_text()
    ]
    assert f"profile       {profile}\n" in done.stdout
    assert run("generate", "x", *models, *all_, **here).stderr.endswith(f" {profile}\n")
    compared = run("compare", "x", *models, *few, "--repeat", 1, **here)
    assert compared.stdout.endswith(f"profile      {profile}\n")
    for settings in (("--profile", "none"), ("--property", "INFERENCE_NUM_THREADS=1")):
        assert "profile" not in run("generate", "x", *models, *all_, *settings, **here).stderr

    named = shutil.move(profile, tmp_path / "mine.json")
    done = run("generate", "x", *models, *all_, "--profile", named, **here)
    assert done.stderr.endswith(f"profile        {named}\n")
