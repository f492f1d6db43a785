"""`ov-specdec serve` as a process: how it starts, what it says, and how it ends."""

import json
import shlex
import signal
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.support.command_line import run
from tests.support.server import serving_process

LONG = {"prompt": "def f(", "max_tokens": 200, "temperature": 0, "ignore_eos": True}


def test_sigterm_lets_what_runs_finish_and_ends_with_0(tmp_path, chat_pair):
    keys = tmp_path / "keys"
    keys.write_text("# of a\n\nkey-of-a\n")
    models = ("--main", chat_pair[0], "--draft", chat_pair[1], "--num-threads", "1")
    with serving_process("--api-key-file", keys, *models) as (process, client):
        client.headers["authorization"] = "Bearer key-of-a"
        assert client.get("/v1/models").json()["data"][0]["id"] == "main"
        with client.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as stream:
            lines = stream.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            assert [line for line in lines if line][-1] == "data: [DONE]"
        assert process.wait(30) == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(client.base_url.join("/health"))
        log = [json.loads(line) for line in process.stderr.read().splitlines()]
    requests = {line["path"]: line for line in log if line.get("event") == "request"}
    assert requests["/v1/completions"]["status"] == 200
    assert requests["/v1/completions"]["completion_tokens"] == 200
    assert "key-of-a" not in json.dumps(log)
    served = f"serving main {chat_pair[0]} on CPU, draft {chat_pair[1]} on CPU, drafter both"
    usual = "default options of requests: temperature=1.0"
    assert {served, usual} <= {line.get("message") for line in log}


ASK = {"prompt": "def f(", "max_tokens": 2}
README = Path(__file__).parents[2] / "README.md"


def test_it_answers_its_page_and_ctrl_c_under_load_ends_it_in_time():
    page = (README.parent / "docs" / "server.md").read_text(encoding="utf-8")
    request = page[page.index("\ncurl ") :].partition("```")[0]
    curl, url, h, header, d, body = shlex.split(request.replace("\\\n", ""))
    assert (curl, h, d) == ("curl", "-H", "-d")
    assert url.startswith("http://127.0.0.1:8000/")
    limits = ("--shutdown-timeout", "0.5", "--max-queue", "2", "--static-shapes", "none")
    with serving_process(*limits) as (process, client):
        headers = dict([header.split(": ")])
        answer = client.post(httpx.URL(url).path, content=body, headers=headers)
        assert answer.json()["choices"][0]["text"].strip()
        assert client.get("/version", headers={"host": "evil.example"}).status_code == 400
        answers = []

        def ask():
            answers.append(
                client.post("/v1/completions", json={**LONG, "n": 8, "max_tokens": 2000})
            )

        thread = threading.Thread(target=ask)
        thread.start()
        while (
            'num_requests_running{model_name="ov-specdec"} 8.0' not in client.get("/metrics").text
        ):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        thread.join(30)
    assert answers[0].status_code == 503
    assert answers[0].json()["error"]["code"] == "draining"


@pytest.mark.deep
def test_it_serves_over_tls(tmp_path):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost")
    files = ("-keyout", key, "-out", certificate, "-addext", "subjectAltName=IP:127.0.0.1")
    subprocess.run([*made, *files], check=True, capture_output=True)
    tls = ("--ssl-certfile", certificate, "--ssl-keyfile", key)
    trust = ssl.create_default_context(cafile=certificate)
    with serving_process(*tls, "--drafter", "none", verify=trust) as (_, client):
        assert client.base_url.scheme == "https"
        assert client.post("/v1/completions", json=ASK).status_code == 200
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(client.base_url.join("/health"))
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(client.base_url.copy_with(scheme="http"))


def test_it_serves_on_a_unix_socket(tmp_path):
    path = tmp_path / "socket"
    connection = {"transport": httpx.HTTPTransport(uds=str(path)), "base_url": "http://any.name"}
    with serving_process("--uds", path, "--drafter", "none", **connection) as (process, client):
        assert client.post("/v1/completions", json=ASK).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert not path.exists()


LOADING = """
import time
from ov_specdec.server.run import serve
from ov_specdec.server.settings import Binding, Settings

def load():
    print("loading", flush=True)
    time.sleep(60)

serve(load, Settings(), Binding(host="127.0.0.1", port=0), print)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once_while_models_load(number):
    command = [sys.executable, "-c", LOADING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "loading\n"
            process.send_signal(number)
            assert process.wait(20) == 0
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--request-timeout", "0"), "--request-timeout 0.0 must be a number above 0"),
        (("--api-key", ""), "so anyone could send it"),
        (("--api-key-file", "nowhere"), "'nowhere' cannot be read as text"),
        (("--host", "nowhere.invalid"), "--host 'nowhere.invalid' --port 0 cannot be used"),
        (("--ssl-certfile", README), f"--ssl-certfile {README} cannot be used"),
        (
            ("--ssl-keyfile", "key.pem"),
            "--ssl-keyfile key.pem has no effect without --ssl-certfile",
        ),
        (("--autoscale", "4:2"), "'4:2' must be MIN:MAX"),
        (("--replicas", "3", "--autoscale", "1:2"), "--replicas 3 must be within --autoscale 1:2"),
    ],
)
def test_what_cannot_be_served_is_refused(arguments, words):
    done = run("serve", "--port", "0", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
