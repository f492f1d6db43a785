"""Turns of pydantic-ai in which a tool must be called, as JSON. python FILE URL MODEL TURNS"""

import json
import sys
from typing import Annotated, Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent, ModelSettings, UsageLimitExceeded, UsageLimits
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

url, model, turns = sys.argv[1:]
calls = []


class Required(AbstractCapability):
    """`tool_choice` in each turn."""

    def get_model_settings(self):
        budget = {"thinking_token_budget": 16}
        return lambda _: ModelSettings(tool_choice="required", extra_body=budget)


class Place(BaseModel):
    x: int = Field(ge=0, le=999)
    y: int = Field(ge=0, le=999)
    kind: Literal["road", "field"]


agent = Agent(
    OpenAIChatModel(model, provider=OpenAIProvider(base_url=url, api_key="none")),
    capabilities=[Required()],
    retries=0,
)


@agent.tool_plain
def locate(name: Annotated[str, Field(max_length=12)], near: Place | None) -> str:
    """Where something is."""
    calls.append("locate")
    return f"{name}: {near}"


@agent.tool_plain
def move(places: Annotated[list[Place], Field(max_length=3)], slowly: bool) -> str:
    """Go there."""
    calls.append("move")
    return f"{len(places)} places, {'slowly' if slowly else 'fast'}"


try:
    agent.run_sync("Go.", usage_limits=UsageLimits(request_limit=int(turns)))
except UsageLimitExceeded as error:
    assert "request_limit" in str(error)
sys.stdout.write(json.dumps({"turns": int(turns), "calls": calls}))
