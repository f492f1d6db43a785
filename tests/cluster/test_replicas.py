"""Several replicas behind one ingress, in a Ray that is started for this module alone."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack, contextmanager, redirect_stdout
from itertools import chain
from types import SimpleNamespace

import httpx
import psutil
import pytest
import ray
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families
from ray.exceptions import RayActorError
from ray.serve.schema import ApplicationStatusOverview, DeploymentStatusOverview

from ov_specdec.api.body import read
from ov_specdec.api.errors import ApiError
from ov_specdec.cli.serve import serve as command
from ov_specdec.cluster.application import NAME, ClusterArgs, build, deploy
from ov_specdec.cluster.replica import SESSION_PREFIX, RemoteEngine, SessionRouter, session_of
from ov_specdec.errors import DeviceError, OptionError
from ov_specdec.openai.requests import ChatBody, CompletionBody
from ov_specdec.server.stream import Stream
from tests.support.server import serving_process, wait_until

BATCH = 2
PIPELINE = {"precision": "exact", "num_threads": 1, "max_batch_size": BATCH}
GREEDY = {"temperature": 0, "ignore_eos": True}
WAIT = 180
"""Seconds for what Ray does."""
LONG = {**GREEDY, "max_tokens": 900, "stream": True}
PROMPTS = [
    f"class {name}:\n    def area(self, w, h):\n" + "        w += h\n" * 20 for name in "ABC"
]
"""Of several blocks each, and different from the first one on."""


class Cluster:
    """The application over HTTP."""

    def __init__(self, port):
        self.port = port
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)

    def deploy(self, **changes):
        args = ClusterArgs(pipeline=PIPELINE, settings={"max_queue": 0}, **changes)
        deploy(args, "127.0.0.1", self.port)

    def complete(self, prompt, **fields):
        body = {**GREEDY, "max_tokens": 8, "prompt": prompt, **fields}
        answer = self.http.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    @contextmanager
    def stream(self, prompt, **fields):
        """The lines of a stream that has begun."""
        body = {**LONG, "prompt": prompt, **fields}
        with self.http.stream("POST", "/v1/completions", json=body) as answer:
            assert answer.status_code == 200, answer.read()
            lines = (line.removeprefix("data: ") for line in answer.iter_lines() if line)
            yield chain([next(lines)], lines)

    def metric(self, name):
        """Values of a metric by replica."""
        found = defaultdict(float)
        for family in text_string_to_metric_families(self.http.get("/metrics").text):
            for sample in family.samples:
                if sample.name == f"ov_specdec:{name}":
                    found[sample.labels["replica"]] += sample.value
        return found

    def wait_for(self, name, condition):
        """Wait until the values of a metric are as they should be."""
        wait_until(lambda: condition(self.metric(name).values()), WAIT)


def processes_of(name, pid=None):
    children = psutil.Process(pid).children(recursive=True)
    return [child for child in children if name in "".join(child.cmdline())]


def replica_processes():
    return processes_of(f"{NAME}:Replica")


# Before the tests of `cluster`, whose replicas hold the CPUs that these want.
@pytest.mark.deep
def test_sigterm_lets_what_replicas_run_finish_and_ends_all_processes():
    models = ("--precision", "exact", "--num-threads", 1, "--max-batch-size", BATCH)
    with serving_process("--replicas", 2, *models) as (process, client):
        others = psutil.Process(process.pid).children(recursive=True)
        with client.stream("POST", "/v1/completions", json={**LONG, "prompt": "def f("}) as stream:
            lines = stream.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            assert [line for line in lines if line][-1] == "data: [DONE]"
        assert process.wait(60) == 0
    assert len(others) > 2
    assert not psutil.wait_procs(others, timeout=20)[1]


@pytest.mark.deep
@pytest.mark.parametrize("begun", ["gcs_server", f"{NAME}:Replica"])
def test_sigterm_while_ray_or_replicas_start_ends_all_processes_at_once(begun):
    command = [sys.executable, "-m", "ov_specdec", "serve", "--port", "0", "--replicas", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: processes_of(begun, process.pid), WAIT)
        others = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stdout.read() == b""
    assert not psutil.wait_procs(others, timeout=20)[1]


@pytest.fixture(scope="module")
def cluster():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    own = {"include_dashboard": False, "object_store_memory": 100_000_000}
    with ray.init("local", num_cpus=len(os.sched_getaffinity(0)), **own):
        made = Cluster(port)
        made.deploy(replicas=2)
        yield made


def test_each_replica_has_a_cpu_of_its_own(cluster):
    masks = [process.cpu_affinity() for process in replica_processes()]
    assert [len(mask) for mask in masks] == [1, 1]
    assert masks[0] != masks[1]


def test_events_come_in_order_and_amount_to_the_whole_answer(cluster):
    fields = {"max_tokens": 40, "n": 2, "seed": 1, "temperature": 0.8, "ignore_eos": True}
    whole = cluster.complete(PROMPTS[0], **fields)
    options = {"include_usage": True}
    with cluster.stream(PROMPTS[0], **fields, stream_options=options) as answer:
        *lines, end = answer
    *events, usage = [json.loads(line) for line in lines]
    assert end == "[DONE]"
    assert usage["usage"]["completion_tokens"] == 80
    texts = defaultdict(str)
    for event in events:
        choice = event["choices"][0]
        texts[choice["index"]] += choice["text"]
    assert len(events) > 4
    assert [texts[0], texts[1]] == [choice["text"] for choice in whole["choices"]]


def test_what_is_wrong_is_told_as_without_replicas(cluster):
    answer = cluster.http.post("/v1/completions", json={"prompt": "x", "logit_bias": {"99999": 1}})
    assert answer.status_code == 400
    assert "99999" in answer.json()["error"]["message"]
    messages = [{"role": "user", "content": "x"}]
    answer = cluster.http.post("/v1/chat/completions", json={"messages": messages})
    message = answer.json()["error"]["message"]
    assert "no chat template: send a text to /v1/completions, or start" in message
    assert cluster.http.get("/health").status_code == 200


def test_a_client_that_leaves_frees_its_blocks(cluster):
    with cluster.stream("def f("):
        assert sum(cluster.metric("num_requests_running").values()) == 1
        before = sum(cluster.metric("generation_tokens_total").values())
    cluster.wait_for("kv_cache_usage_perc", lambda used: not any(used))
    cluster.wait_for("num_requests_running", lambda running: not any(running))
    after = sum(cluster.metric("generation_tokens_total").values())
    assert after - before < 800  # of 900


def test_a_prompt_goes_to_the_replica_of_its_session(cluster):
    with cluster.stream(PROMPTS[1]):
        busy = cluster.metric("num_requests_running")
        cluster.complete(PROMPTS[2])  # goes to the other one, which is idle
    cluster.wait_for("num_requests_running", lambda running: not any(running))
    assert sorted(busy.values()) == [0, 1]
    for prompt, was_busy in ((PROMPTS[1], 1), (PROMPTS[2], 0)) * 2:
        hits = cluster.metric("prefix_cache_hits_total")
        usage = cluster.complete(prompt + "# more")["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] >= 64
        now = cluster.metric("prefix_cache_hits_total")
        assert [busy[name] for name in hits if now[name] > hits[name]] == [was_busy]


@pytest.mark.deep
def test_a_replica_that_is_killed_ends_its_own_requests_alone(cluster):
    prompt = "def f("  # is of no session, so that only load decides
    alone = cluster.complete(prompt, max_tokens=900)["choices"][0]["text"]
    with cluster.stream(prompt) as one, cluster.stream(prompt) as other:
        assert list(cluster.metric("num_requests_running").values()) == [1, 1]
        replica_processes()[0].kill()
        answers = sorted([list(one), list(other)], key=len)
    lost, whole = answers
    assert json.loads(lost[-1])["error"]["code"] == "replica_lost"
    assert whole[-1] == "[DONE]"
    assert "".join(json.loads(line)["choices"][0]["text"] for line in whole[:-1]) == alone


@pytest.mark.deep
def test_replicas_come_and_go_with_the_load(cluster):
    cluster.deploy(
        autoscale={
            "min_replicas": 1,
            "max_replicas": 2,
            "upscale_delay_s": 0,
            "downscale_delay_s": 1,
            "look_back_period_s": 1,
            "metrics_interval_s": 0.5,
        }
    )
    assert len(cluster.metric("num_requests_running")) == 1
    with ExitStack() as opened:

        def has_grown_under_load():
            running = cluster.metric("num_requests_running")
            if sum(running.values()) < BATCH:  # those before may end until another replica is ready
                opened.enter_context(cluster.stream(PROMPTS[0]))
            return len(running) == 2

        wait_until(has_grown_under_load, WAIT)
    wait_until(lambda: len(cluster.metric("num_requests_running")) == 1, WAIT)
    assert cluster.complete(PROMPTS[0])["choices"]


@pytest.fixture
def bound(monkeypatch):
    """What deployments are given: the replicas, then the ingress."""
    given = []
    monkeypatch.setattr("ray.serve.Deployment.bind", lambda self, *each: given.append(each))
    return given


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"settings": {"max_queu": 1}}, r"setting 'max_queu': did you mean max_queue\?"),
        ({"pipeline": {"mian": "models/main"}}, r"option 'mian': did you mean main\?"),
        ({"settings": {"max_batch_size": 4}}, "setting max_batch_size=4: put it under pipeline"),
    ],
)
def test_what_a_serve_yaml_cannot_set_is_refused(wrong, complaint):
    with pytest.raises(OptionError, match=complaint):
        build(ClusterArgs(**wrong))


@pytest.mark.parametrize("scale", [("--replicas", "2"), ("--autoscale", "1:2")])
def test_the_command_hands_its_options_over(monkeypatch, bound, scale):
    application = "ov_specdec.cluster.application.serve_replicas"
    monkeypatch.setattr(application, lambda args, *_: build(args))
    options = ("--port", "0", "--max-batch-size", "4", "--api-key", "a-key")
    done = CliRunner().invoke(command, [*scale, *options])
    assert done.exit_code == 0, done.output
    _, settings, max_running, _ = bound[1]
    assert (max_running, settings.api_keys) == (8, ("a-key",))


def test_the_address_is_on_stdout_although_what_ray_prints_is_not(monkeypatch):
    def serve(args, host, port, address, announce):
        with redirect_stdout(sys.stderr):
            announce()

    monkeypatch.setattr("ov_specdec.cluster.application.serve_replicas", serve)
    done = CliRunner().invoke(command, ["--replicas", "2", "--port", "0"])
    assert done.stdout.startswith("http://127.0.0.1:")


def test_keys_stay_in_the_ingress(bound):
    args = ClusterArgs(settings={"api_keys": ["a-key"]})
    build(args)
    assert [given[1].api_keys for given in bound] == [(), ("a-key",)]
    assert "a-key" not in repr((args, bound))


def session(prompt, tenant=None, key=None, **fields):
    is_chat = isinstance(prompt[0], dict)
    kind, field = (ChatBody, "messages") if is_chat else (CompletionBody, "prompt")
    return session_of(read(kind, {field: prompt, "prompt_cache_key": key, **fields}), tenant)


def of_choices(n, prompt="x"):
    return read(CompletionBody, {"prompt": prompt, "n": n})


def test_turns_of_a_conversation_are_of_one_session():
    system, first = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}
    answer, other = {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Why?"}
    begun = session([system, first])
    assert begun == session([system, first, answer, other]) is not None
    assert begun != session([system, other])
    text = "x" * SESSION_PREFIX
    assert session(text + "a") == session(text + "b") is not None
    assert session(list(range(SESSION_PREFIX))) is not None
    assert session(text[1:]) is None


def test_sessions_of_other_tenants_salts_and_keys_differ():
    text = "x" * SESSION_PREFIX
    found = [
        *(session(text, tenant) for tenant in ("one", "other", None)),
        *(session(text, tenant, cache_salt="x") for tenant in ("one", "other", None)),
        *(session(text, tenant, key) for tenant in ("one", None) for key in ("key", "another")),
    ]
    assert len({*found, None}) == len(found) + 1
    assert session("a", "one", "key") == session(text, "one", "key")


def test_why_replicas_do_not_start_is_what_their_error_says(monkeypatch):
    def run(*_, **__):
        raise RuntimeError

    failed = "Error:\n  File ..., line 40\nModelError: 'nowhere' is not a folder\n"
    deployments = {
        name: DeploymentStatusOverview("UNHEALTHY", "UNSPECIFIED", {}, message)
        for name, message in (("Replica", failed), ("Ingress", ""))
    }
    application = ApplicationStatusOverview("DEPLOY_FAILED", "It failed.", 0.0, deployments)
    status = SimpleNamespace(applications={NAME: application})
    fake = SimpleNamespace(start=lambda **_: None, run=run, status=lambda: status)
    monkeypatch.setattr("ov_specdec.cluster.application.serve", fake)
    monkeypatch.setattr("ov_specdec.cluster.application.build", lambda args: None)
    with pytest.raises(DeviceError, match=r"could not be started: ModelError: 'nowhere' is not a"):
        deploy(ClusterArgs(), "127.0.0.1", 0)


@pytest.fixture
def router():
    made = SessionRouter.__new__(SessionRouter)  # Ray's own part wants a Ray
    made.initialize_state(batch_size=BATCH)
    return made


def pending(name, ask):
    """A request that Ray has not sent to a replica yet."""
    context = SimpleNamespace(should_backoff=False)
    metadata = SimpleNamespace(internal_request_id=name)
    return SimpleNamespace(args=[ask, None], metadata=metadata, routing_context=context)


def ranks(router, ask):
    """Two replicas, by how well they suit."""
    replicas = [SimpleNamespace(replica_id=name) for name in "AB"]
    chosen = asyncio.run(router.choose_replicas(replicas, pending("next", ask)))
    return [{replica.replica_id for replica in rank} for rank in chosen]


def test_each_choice_of_an_answer_takes_a_place_in_a_replica(router):
    router.on_request_routed(pending("one", of_choices(2 * BATCH)), "A", None)
    router.on_request_routed(pending("other", of_choices(1)), "B", None)
    assert ranks(router, of_choices(1)) == [{"B"}, {"A"}]
    router.on_request_completed("A", "one")
    assert ranks(router, of_choices(1)) == [{"A"}, {"B"}]


def test_a_request_goes_where_its_session_has_gone_unless_that_is_full(router):
    def ask(text, n=1):
        return of_choices(n, text * SESSION_PREFIX)

    router.on_request_routed(pending("one", ask("a")), "A", None)
    assert ranks(router, ask("a")) == [{"A"}, {"B"}]
    assert ranks(router, ask("b")) == [{"B"}, {"A"}]
    router.on_request_routed(pending("two", ask("a", BATCH)), "A", None)
    assert ranks(router, ask("a")) == [{"B"}, {"A"}]


class Handle:
    """A deployment whose replicas do what they are told, one after the other."""

    def __init__(self, *scripts):
        self._scripts = list(scripts)
        self.num_cancelled = 0

    def options(self, stream):
        return self

    @property
    def generate(self):
        return self

    def remote(self, ask, tenant):
        return Response(self, self._scripts.pop(0))


class Response:
    def __init__(self, handle, script):
        self._handle, self._script = handle, script

    async def __aiter__(self):
        for item in self._script:
            if isinstance(item, RayActorError):
                raise item
            yield item

    def cancel(self):
        self._handle.num_cancelled += 1


def read_from(*scripts):
    """What a stream gets of replicas that follow scripts, and how many of them were cancelled."""

    async def run():
        handle = Handle(*scripts)
        stream = Stream(1)
        engine = RemoteEngine(handle, 1, None)
        await engine._read(of_choices(1), None, stream, 3)
        return await stream.next(), handle.num_cancelled

    return asyncio.run(run())


def test_a_request_that_has_no_token_yet_goes_to_another_replica():
    chunks, num_cancelled = read_from([RayActorError()], [RayActorError()], [[(0, "a"), (0, "b")]])
    assert chunks == [(0, "a"), (0, "b")]
    assert num_cancelled == 3


@pytest.mark.parametrize("scripts", [[[[(0, "a")], RayActorError()]], [[RayActorError()]] * 3])
def test_a_request_fails_after_its_first_token_or_the_last_attempt(scripts):
    with pytest.raises(ApiError) as raised:
        read_from(*scripts)
    assert raised.value.code == "replica_lost"
