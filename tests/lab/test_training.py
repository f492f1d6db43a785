"""The training scripts of the embedded pair, end to end in miniature: minutes become seconds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "models" / "training"

# In a process of its own: the scripts import one another by plain names such as `config`.
MINIATURE = """
import itertools, json, sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import torch

import continuations, corpus, distil, duplicates, eagle3, evaluate, export, plot, tokenizer, train
import unlikelihood
from config import llama

torch.set_num_threads(1)
# Each step takes as long, or a busy machine would do too few of them within its minutes.
train.time = SimpleNamespace(monotonic=itertools.count(0.0, 0.1).__next__)
data = Path(sys.argv[1])
_, files = corpus.stdlib_files(200_000, duplicates.Seen())
(data / "corpus").mkdir()
for side, part in (("train", files[:-6]), ("heldout", files[-6:])):
    lines = (json.dumps({"package": "stdlib", **file}) + "\\n" for file in part)
    (data / "corpus" / f"{side}.jsonl").write_text("".join(lines))
tokenizer.build(data, 600)

shapes = [llama(layers, 64, 1, 1, 96) for layers in (2, 1)]
for shape in shapes:
    shape.vocab_size = 600
losses = [
    train.train(
        data, "main", minutes, shapes[0], ((0.0, 1), (0.5, 2)), 1024, heldout_tokens=1024
    )
    for minutes in (0.01, 0.06)  # the second call goes on where the first one ended
]
unlikelihood.teach(data, 0.02, heldout_tokens=1024, row=64, fresh=8)
continuations.write(data, 0.0, rows=4, total=65)
small = {"tokens_per_step": 128, "heldout_tokens": 1024, "row": 64, "long": 128}
distil.distil(data, 0.03, "draft", shapes[1], reverse=0.5, **small)
shapes[0].update({"hidden_size": 64, "vocab_size": 601, "pard_token": 600})
for minutes in (0.01, 0.03):
    distil.distil(data, minutes, "parallel", shapes[0], **small)
depths = json.loads((data / "parallel.jsonl").read_text().splitlines()[-1])
shapes[0].update({"pard2_target_layers": [1, 2], "pard2_scale": 1.0})
distil.distil(data, 0.03, "pard2", shapes[0], **small)
projection = torch.load(data / "pard2" / "warp_model.bin")["target_proj.weight"]
steps = [eagle3.train(data, minutes, 128, row=64) for minutes in (0.0, 0.05, 0.1)]
plot.draw(data, data / "loss.svg")
for name in ("main", "draft"):
    export.export(data / name, data / f"{name}-int8", keep=name == "draft")
report = evaluate.evaluate(data, data / "main-int8", data / "draft-int8", 2, 1, 2)
found = {"losses": losses, "depths": depths, "report": asdict(report), "steps": steps}
found["projection"] = projection.abs().max().item()
print(json.dumps({**found, "text": evaluate.markdown(report)}))
"""


@pytest.mark.deep
def test_the_scripts_train_distil_and_evaluate_a_pair(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", MINIATURE, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=SCRIPTS,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout.splitlines()[-1])
    early, late = result["losses"]
    assert late < early, "further training did not lower the held-out loss"
    assert result["depths"]["layers"] == 2, "twice the draft's"
    assert all(0 <= result["depths"][f"agree{depth}"] <= 1 for depth in range(8))
    assert result["projection"] > 0, "PARD-2 takes part in the training"
    first, *_, last = result["steps"]
    assert sum(last) > sum(first), "training did not make a head's tokens the main's"
    report = result["report"]
    assert set(report["loss"]) == {"main", "draft"}
    assert set(report["acceptance"]) == {"0.0", "0.5", "1.0"}
    for temperature, proposed in report["acceptance"].items():
        judged = report["per_token"][temperature]
        assert all(0 <= rate <= judged[length] <= 1 for length, rate in proposed.items())
    assert set(report["long_prompts"]) == {"0.0", "0.5", "1.0"}
    assert all(0 <= p <= judged <= 1 for p, judged in report["long_prompts"].values())
    assert len(report["ratios"]) == 1
    assert result["text"].count("| greedy |") == 3
    assert (tmp_path / "checkpoint" / "model.safetensors").is_file()
    assert (tmp_path / "loss.svg").is_file()


PIECES = """
import json

import torch

from head import Mix, head_loss
from masks import Layout
from unlikelihood import loops

torch.manual_seed(0)
hidden, weight = torch.randn(5, 8), torch.randn(11, 8)
told, targets = (torch.randn(5, 8), torch.randn(11, 8)), torch.arange(5)
mix = Mix(forward=0.5, reverse=0.3)
ours = [tensor.clone().requires_grad_() for tensor in (hidden, weight)]
loss = head_loss(*ours, targets, told, mix)
loss.backward()
plain = [tensor.clone().requires_grad_() for tensor in (hidden, weight)]
student, teacher = ((h @ w.T).log_softmax(-1) for h, w in (plain, told))
text_loss = -student[torch.arange(5), targets].mean()
forward = (teacher.exp() * (teacher - student)).sum(-1).mean()
reverse = (student.exp() * (student - teacher)).sum(-1).mean()
expected = mix.text * text_loss + mix.forward * forward + mix.reverse * reverse
expected.backward()
pairs = [(loss, expected), *((a.grad, b.grad) for a, b in zip(ours, plain))]

# Chains of two masks behind token 1 and of one behind token 3, in a text of five.
layout = Layout.chained(5, [torch.tensor([1, 3]), torch.tensor([1])])
seen_by = [row.nonzero().flatten().tolist() for row in layout.attention()[0, 0]]

run = list(range(6))
print(json.dumps({
    "gradients": [torch.allclose(a, b, atol=1e-5) for a, b in pairs],
    "masks": [layout.fill(torch.arange(5)[None], 9).tolist(), layout.positions.tolist(), seen_by],
    "loops": loops(torch.tensor([run * 5, list(range(30))])).sum(1).tolist(),
}))
"""


@pytest.mark.deep
def test_the_pieces_of_training_compute_what_they_say():
    done = subprocess.run(
        [sys.executable, "-c", PIECES], capture_output=True, text=True, cwd=SCRIPTS, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["gradients"] == [True, True, True], "loss and gradients as autograd has them"
    inputs, positions, seen_by = result["masks"]
    assert inputs == [[0, 1, 2, 3, 4, 9, 9, 9]]
    assert positions == [0, 1, 2, 3, 4, 2, 4, 3]
    assert seen_by[:5] == [list(range(end)) for end in range(1, 6)]
    assert seen_by[5:] == [[0, 1, 5], [0, 1, 2, 3, 6], [0, 1, 5, 7]], "the text and its own chain"
    # Five times the same six tokens: every run in it has come three times before from token 24 on.
    assert result["loops"] == [7, 0]
