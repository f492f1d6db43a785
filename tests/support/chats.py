"""Tokenizers with chat templates, as model folders hold them."""

import json
from pathlib import Path

from ov_specdec.options.generation import GenerationOptions
from ov_specdec.text.generated_tokens import GeneratedTokens
from ov_specdec.text.prompt import encode_prompt
from ov_specdec.text.tokenizer import Tokenizer, load_tokenizer
from tests.support.tiny import EOS, SAMPLE, save_tokenizer

PLAIN = (
    "{% for m in messages %}<eos>{{ m['role'] }}\n{{ m['content'] }}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}<eos>assistant\n{% endif %}"
)
TEMPLATES = {
    "plain": PLAIN,
    "strips": (
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}[INST] "
        "{{ m['content'].strip() }} [/INST]{% elif m['role'] == 'system' %}{{ m['content'] }}"
        "{% else %} {{ m['content'] | trim }}<eos>{% endif %}{% endfor %}"
    ),
    "refuses": (
        "{% if messages[0]['role'] == 'system' %}"
        "{{ raise_exception('System role\nnot supported') }}{% endif %}" + PLAIN
    ),
    "parts": (
        "{% for m in messages %}<eos>{{ m['role'] }}\n"
        "{% if m['content'] is string %}{{ m['content'] }}"
        "{% else %}{% for part in m['content'] %}{{ part['text'] }}{% endfor %}{% endif %}<eos>\n"
        "{% endfor %}{% if add_generation_prompt %}<eos>assistant\n{% endif %}"
    ),
    "tools": (
        "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
        + PLAIN
        + "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    ),
}

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "What is the area of a 3 by 4 field?"}
ANSWER = {"role": "assistant", "content": "It is 12."}
CONVERSATIONS = {
    "one message": [USER],
    "system": [SYSTEM, USER],
    "turns": [USER, ANSWER, {"role": "user", "content": "  Größe 鱻\n😀 "}],
}


def save_byte_fallback(folder: Path, *, sample: str = SAMPLE, metaspace: bool = False) -> None:
    """Save a tokenizer as Llama 2 has it: spaces become "▁", what is not known bytes.

    metaspace: a pre-tokenizer does the first of these.
    """
    from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
    from tokenizers import Tokenizer as Backend
    from tokenizers.trainers import BpeTrainer
    from transformers import PreTrainedTokenizerFast

    spaces = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trained = Backend(models.BPE())
    trained.normalizer = spaces
    trained.train_from_iterator(
        [sample, "What is it? Yes. No. It is 12. assistant user [INST] [/INST]"],
        BpeTrainer(special_tokens=["<unk>", "<s>", EOS], show_progress=False),
    )
    model = json.loads(trained.to_str())["model"]
    for byte in range(256):
        model["vocab"][f"<0x{byte:02X}>"] = len(model["vocab"])
    merges = [tuple(merge) for merge in model["merges"]]
    unknown = {"unk_token": "<unk>"}
    backend = Backend(models.BPE(model["vocab"], merges, byte_fallback=True, **unknown))
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in ("<s>", EOS)])
    if metaspace:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    else:
        backend.normalizer = spaces
    backend.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    names = {"bos_token": "<s>", "eos_token": EOS, **unknown}
    PreTrainedTokenizerFast(tokenizer_object=backend, **names).save_pretrained(folder)


KINDS = {"byte level": save_tokenizer, "byte fallback": save_byte_fallback}


def make_tokenizer(folder: Path, *, kind: str = "byte level", template: str = PLAIN) -> Tokenizer:
    """A tokenizer of one of `KINDS` with a chat template, saved into a new folder."""
    folder.mkdir()
    KINDS[kind](folder)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return load_tokenizer(folder)


def ids(tokenizer, prompt, **options):
    return encode_prompt(prompt, GenerationOptions(**options), tokenizer, GeneratedTokens(), 1000)
