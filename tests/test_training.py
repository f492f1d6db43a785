"""The training scripts of the embedded pair, end to end in miniature: minutes become seconds."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parent.parent / "models" / "training"

# In a process of its own: the scripts import one another by plain names such as `config`.
MINIATURE = """
import json, sys
from pathlib import Path

import torch

import continuations, corpus, distil, evaluate, tokenizer, train
from config import llama

torch.set_num_threads(1)
data = Path(sys.argv[1])
_, files = corpus.stdlib_files(200_000, set())
(data / "corpus").mkdir()
for side, part in (("train", files[:-3]), ("heldout", files[-3:])):
    lines = (json.dumps({"package": "stdlib", **file}) + "\\n" for file in part)
    (data / "corpus" / f"{side}.jsonl").write_text("".join(lines))
tokenizer.build(data, 600)

shapes = [llama(layers, 64, 1, 1, 96) for layers in (2, 1)]
for shape in shapes:
    shape.vocab_size = 600
losses = [
    train.train(
        data, "main", minutes, shapes[0], ((0.0, 1), (0.5, 2)), chunks_per_step=1, heldout_chunks=1
    )
    for minutes in (0.01, 0.06)  # the second call goes on where the first one ended
]
continuations.write(data, 0.0, rows=4, total=65)
distil.distil(data, 0.03, shapes[1], chunks_per_step=2, heldout_chunks=1, row=64)
result = evaluate.evaluate(data, 4, 16, 24, chunks=1)
print(json.dumps({"losses": losses, "report": evaluate.markdown(result)}))
"""


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
    assert "held-out" in result["report"]
    for model in ("main", "draft"):
        assert (tmp_path / model / "config.json").is_file()
        assert (tmp_path / model / "tokenizer.json").is_file()


def test_the_package_does_not_know_the_scripts():
    package = SCRIPTS.parent.parent / "ov_specdec"
    for path in package.rglob("*.py"):
        assert "models.training" not in path.read_text(encoding="utf-8")
