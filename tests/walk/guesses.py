"""What users of transformers try first. Run in the clean environment, as a script.

It prints a line of JSON for each guess: the guess, and what is wrong with the answer to it.
"""

import json
import sys

from transformers import BatchEncoding, GenerationConfig  # noqa: F401

from ov_specdec import SpecdecError, SpeculativePipeline

TEXT = "class Stack:"

WORKS = (
    "pipeline.tokenizer(TEXT)",
    "generate(TEXT, max_new_tokens=4, pad_token_id=0, use_cache=True, num_beams=1)",
    "generate(TEXT, generation_config=GenerationConfig(max_new_tokens=4, do_sample=False))",
    "generate(ids, max_new_tokens=4)",
    "generate(input_ids=ids, max_new_tokens=4)",
    "generate([ids], max_new_tokens=4)",
    "generate(BatchEncoding({'input_ids': [ids], 'attention_mask': [[1] * len(ids)]}))",
    "pipeline.generate_batch([TEXT, TEXT], max_new_tokens=4)",
    "generate(TEXT, attention_mask=[1] * len(ids), max_new_tokens=4)",
    "generate(TEXT, max_new_tokens=4)._repr_html_()",
    "SpeculativePipeline(device='cpu', device_map='auto').close()",
    "SpeculativePipeline.from_pretrained(device='cpu').close()",
    "pipeline.tokenizer.decode(ids, skip_special_tokens=True)",
    "pipeline.tokenizer.encode(TEXT, add_special_tokens=False)",
    "len(pipeline.tokenizer)",
    "generate(TEXT, top_k=-1, max_new_tokens=4)",
)
"""Is accepted."""

HINTS = {
    "generate([TEXT, TEXT])": "generate_batch",
    "generate(TEXT, assistant_model='models/draft')": "give draft to SpeculativePipeline",
    "generate(TEXT, stop=['x'])": "stop_strings",
    "generate(TEXT, num_beams=4)": "beam",
    "generate(TEXT, max_length=20)": "max_new_tokens",
    "generate(TEXT, streamer=print)": "stream(",
    "generate(TEXT, max_tokens=4)": "max_new_tokens",
    "generate(TEXT, temprature=0.5)": "temperature",
    "generate(TEXT, attention_mask=[0, 1])": "leave it out",
    "SpeculativePipeline('gpt2')": "owner/model",
    "SpeculativePipeline(assistant_model='models/draft')": "did you mean draft",
    "SpeculativePipeline(device='cuda')": "Intel GPU",
    "SpeculativePipeline(dtype='float32')": "precision",
    "SpeculativePipeline(temperature=0.5)": "give temperature to generate",
}
"""Is refused, with a hint that names this, and no list of all options."""


def problem_of(guess, names):
    """What is wrong with the answer; empty where it is right."""
    hint = HINTS.get(guess)
    try:
        eval(guess, names)  # noqa: S307
    except (SpecdecError, AttributeError, TypeError) as error:
        is_hint = hint is not None and hint in str(error) and "there are: " not in str(error)
        return "" if is_hint else f"{hint or 'an answer'} is not in: {error}"
    except Exception as error:  # what a user is not to meet
        return f"{type(error).__name__}: {error}"
    return "" if hint is None else "it is accepted"


def names_of(pipeline):
    """What guesses name."""
    ids = list(pipeline.tokenizer.encode(TEXT))
    return {**globals(), "pipeline": pipeline, "generate": pipeline.generate, "ids": ids}


def main():
    with SpeculativePipeline() as pipeline:
        names = names_of(pipeline)
        problems = {guess: problem_of(guess, names) for guess in (*WORKS, *HINTS)}
        shown = len(str(pipeline.generate(TEXT, max_new_tokens=64)))
    problems["print(result)"] = f"{shown} characters" if shown > 400 else ""
    for row in problems.items():
        sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
