"""The load of `lab.load.clients`, as long as a suite can bear."""

import asyncio
import json
import subprocess

import pytest

from lab.load import beside
from lab.load.clients import WEIGHTS, load
from ov_specdec import SpeculativePipeline
from tests.support.server import serving, serving_process, wait_until

AIPERF = (
    "aiperf profile --ui none --model ov-specdec --endpoint-type completions --streaming "
    "--concurrency 4 --request-count 24 --synthetic-input-tokens-mean 64 --output-tokens-mean 16"
)


def test_no_answer_is_lost_mixed_or_cut_under_load():
    with SpeculativePipeline(precision="exact", num_threads=1, max_batch_size=8) as pipeline:
        pipeline.prepare(seconds=0.5)
        with serving(pipeline, max_queue=16) as server:
            figures = asyncio.run(load(server.url, num_clients=32, seconds=3))
            # One that hung up leaves a moment after its client, and its blocks after the step.
            wait_until(lambda: server.service.slots.taken.total() == 0)
            wait_until(lambda: server.metric("kv_cache_usage_perc") == 0)
    assert figures["wrong"] == []
    assert figures["left running"] == 0
    assert figures["told to come later"] > 0
    assert figures["health by status"].keys() == {200}
    assert figures["answered"].keys() == WEIGHTS.keys(), figures


@pytest.mark.deep
def test_guidellm_gets_all_its_answers_beside_hostile_clients():
    figures = beside.run(20)
    assert beside.is_well(figures), figures
    assert figures["guidellm"]["whole"] > 0
    assert figures["others"]["answered"].keys() == beside.WEIGHTS.keys()


@pytest.mark.deep
def test_aiperf_gets_all_its_answers(tmp_path):
    with serving_process("--log-level", "error") as (_, http):
        models = ("--url", str(http.base_url), "--tokenizer", beside.MODELS / "main")
        command = [*AIPERF.split(), *models, "--output-artifact-dir", tmp_path]
        assert subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0
    lines = (tmp_path / "profile_export.jsonl").read_text().splitlines()
    assert [json.loads(line).get("error") for line in lines] == [None] * 24
