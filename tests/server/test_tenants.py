"""One client beside another: neither its answers nor its waiting depend on what the other asks."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ov_specdec import GenerationOptions, SpeculativePipeline
from tests.support.chats import USER
from tests.support.server import serving, wait_until

KEYS = ("key-of-a", "key-of-b")
CHAT = "/v1/chat/completions"
SAMPLED = {"temperature": 1.5, "max_tokens": 24, "suppress_tokens": [0]}
"""What a random model draws is hardly ever what its text encodes to."""


@pytest.fixture(scope="module")
def pipeline(chat_pair):
    with SpeculativePipeline(
        *chat_pair, precision="exact", num_threads=1, max_batch_size=4
    ) as made:
        yield made


def quoting(text):
    """Messages in which a text is the answer to the user's first one."""
    return [USER, {"role": "assistant", "content": text}, USER]


@pytest.mark.parametrize(
    ("keys", "theirs", "mine"),
    [
        ((), {}, {}),
        ((), {"cache_salt": "theirs"}, {}),
        ((), {}, {"cache_salt": "mine"}),
        ((), {"cache_salt": "theirs"}, {"cache_salt": "mine"}),
        (KEYS, {}, {}),
        (KEYS, {"cache_salt": "one"}, {"cache_salt": "one"}),
    ],
)
def test_what_a_client_makes_the_model_write_changes_no_answer_to_another(
    pipeline, keys, theirs, mine
):
    a, b = keys or (None, None)
    tokenizer = pipeline.tokenizer
    with serving(pipeline, api_keys=keys) as server:
        for seed in range(5):
            body = {"messages": [USER], **SAMPLED, "seed": seed, **theirs}
            text = server.post(CHAT, a, **body).json()["choices"][0]["message"]["content"]
            body = {"messages": quoting(text), "temperature": 0, "max_tokens": 8, **mine}
            answer = server.post(CHAT, b, **body).json()
            rendered = tokenizer.render_chat(quoting(text), GenerationOptions())
            ids = tokenizer.encode_rendered(rendered).ids
            fresh = pipeline.generate(ids, max_new_tokens=8, cache_prompt=False)
            assert answer["choices"][0]["message"]["content"] == fresh.text
            assert answer["usage"]["prompt_tokens"] == len(ids)


MANY = {"max_tokens": 64, "ignore_eos": True, "temperature": 1, "seed": 1}


@pytest.mark.parametrize(
    "many",
    [{"prompt": "def area(", "n": 32}, {"prompt": [f"def f{i}(" for i in range(32)]}],
    ids=["choices", "prompts"],
)
def test_a_request_of_many_choices_keeps_nobody_waiting(pipeline, many):
    a, b = KEYS
    small = {"prompt": "x = ", "max_tokens": 8, "temperature": 0}
    with serving(pipeline, api_keys=KEYS) as server, ThreadPoolExecutor() as threads:
        alone = server.post("/v1/completions", b, **small).json()["choices"]
        answer = threads.submit(server.post, "/v1/completions", a, **many, **MANY)
        wait_until(lambda: server.metric("num_requests_running") == 4)
        assert server.metric("num_requests_waiting") == 28
        for _ in range(5):
            assert server.post("/v1/completions", b, **small).json()["choices"] == alone
            assert not answer.done()
        assert len(answer.result().json()["choices"]) == 32
