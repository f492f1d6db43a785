"""Instructor: instances of pydantic models, as JSON. python with_instructor.py URL MODEL."""

import json
import sys
from typing import Literal

import instructor
from openai import OpenAI
from pydantic import BaseModel, Field


class Size(BaseModel, extra="forbid"):
    name: Literal["small", "large"]
    width: int = Field(ge=0, le=99)
    tags: list[bool] = Field(max_length=2)


def main():
    url, model = sys.argv[1:]
    mode = instructor.Mode.JSON_SCHEMA
    client = instructor.from_openai(OpenAI(base_url=url, api_key="none"), mode=mode)
    asked = {
        "model": model,
        "messages": [{"role": "user", "content": "return width"}],
        "response_model": Size,
        "max_retries": 0,
        "temperature": 0,
    }
    made, completion = client.chat.completions.create_with_completion(**asked)
    partial = [*client.chat.completions.create_partial(**asked)]
    answer = {
        "made": made.model_dump(),
        "text": completion.choices[0].message.content,
        "num_partial": len(partial),
        "last": partial[-1].model_dump(),
    }
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
