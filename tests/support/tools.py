"""Small chat templates with tools and reasoning, and the tiny models with their markers.

They write only the names of tools, since the context of tiny models is short.
"""

import json
import shutil
from pathlib import Path

from ov_specdec.results.parts import joined
from ov_specdec.text.chat_template import ChatTemplate

MARKERS = ("<tool_call>", "</tool_call>", "<think>", "</think>")

FOLDER = Path(__file__).parents[1] / "data" / "templates"
TEMPLATES = {
    name: (FOLDER / f"{name}.jinja").read_text(encoding="utf-8").removesuffix("\n")
    for name in ("hermes", "coder")
}
"""All arguments as one JSON object, as in Qwen3; each between tags, as in Qwen3-Coder."""


def function(name, properties=None, *, strict=None, **schema):
    """A tool; all of its arguments are required unless the schema says otherwise."""
    properties = properties or {}
    schema = {"required": [*properties], "additionalProperties": False, **schema}
    parameters = {"type": "object", "properties": properties, **schema}
    definition = {"name": name, "parameters": parameters}
    definition |= {} if strict is None else {"strict": strict}
    return {"type": "function", "function": definition}


UNIT = {"enum": ["m", "km"]}
NAME = {"type": "string", "maxLength": 6}
AREA = function("area", {"unit": UNIT, "name": NAME, "is_round": {"type": "boolean"}})
STOP = function("stop")


def with_tools(
    folders, target: Path, template: str, markers=MARKERS, *, special: bool = False
) -> list[Path]:
    """Copies of the folders of models with this template, and the markers as tokens.

    special: whether texts leave them out.
    """
    copies = []
    for folder in folders:
        copy = Path(shutil.copytree(folder, target / folder.name))
        (copy / "chat_template.jinja").write_text(template)
        file = copy / "tokenizer.json"
        spec = json.loads(file.read_text())
        size = 1 + max(spec["model"]["vocab"].values())
        like = {**spec["added_tokens"][0], "special": special}
        spec["added_tokens"] += [
            {**like, "id": size + n, "content": name} for n, name in enumerate(markers)
        ]
        file.write_text(json.dumps(spec))
        copies.append(copy)
    return copies


def merged(chunks) -> list:
    """The parts of chunks, each text, reasoning and arguments in one piece."""
    return [*joined(part for chunk in chunks for part in chunk.parts)]


class Template:
    """A chat template without a model."""

    def __init__(self, text, *added):
        self.chat_template = text
        tokens = [{"content": name, "id": n, "special": False} for n, name in enumerate(added)]
        self.spec = {"added_tokens": tokens}

    def render_chat(self, messages, options):
        special_tokens = {"bos_token": "<s>", "eos_token": "</s>"}
        return ChatTemplate(self.chat_template, special_tokens).render(messages, options)
