"""Turns of openai-agents in which a tool must be called, by both endpoints, as JSON.

python FILE URL MODEL TURNS
"""

import json
import sys
from typing import Annotated, Literal

from agents import (
    Agent,
    MaxTurnsExceeded,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel, Field

url, model, turns = sys.argv[1:]
calls = []
set_tracing_disabled(True)


class Place(BaseModel):
    x: Annotated[int, Field(ge=0, le=999)]
    kind: Literal["road", "field"]


@function_tool(failure_error_function=None)
def locate(name: Annotated[str, Field(max_length=12)], near: Place | None) -> str:
    """Where something is."""
    calls.append("locate")
    return f"{name}: {near}"


@function_tool(failure_error_function=None)
def move(places: Annotated[list[Place], Field(max_length=3)], slowly: bool) -> str:
    """Go there."""
    calls.append("move")
    return f"{len(places)} places, {'slowly' if slowly else 'fast'}"


client = AsyncOpenAI(base_url=url, api_key="none")
for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
    agent = Agent(
        name="agent",
        model=kind(model=model, openai_client=client),
        model_settings=ModelSettings(
            tool_choice="required", extra_body={"thinking_token_budget": 16}
        ),
        tools=[locate, move],
        reset_tool_choice=False,
    )
    try:
        Runner.run_sync(agent, "Go.", max_turns=int(turns))
    except MaxTurnsExceeded:
        continue
    raise AssertionError("it has ended without a call")
sys.stdout.write(json.dumps({"turns": 2 * int(turns), "calls": calls}))
