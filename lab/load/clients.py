"""Clients of all kinds at once, and what each of them gets.

    python -m lab.load.clients URL [--clients 64] [--seconds 600] [--pid SERVER] [--kinds bad]

Most stream, hang up at random or wait for whole answers; a sixth is hostile: bad bodies, prompts
that are too long, a stop string of a million characters, more choices than anybody may have. Every
greedy answer is compared with the one that the same prompt gets alone, so run the server with
`--precision exact`. Prints figures as JSON; exit code 1 if an answer was lost, mixed up or cut, or
if `/health` has failed meanwhile.
"""

import argparse
import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import httpx
import psutil

PROMPTS = tuple(
    f"{head} {name}(x, y):\n" for head in ("def", "class", "async def") for name in "abc"
)
MAX_TOKENS = 32
WEIGHTS = {
    **{"stream": 28, "hang-up": 28, "whole": 28},
    **{"bad": 4, "too-long": 4, "long-stop": 4, "too-many": 4},
}
"""Kinds of requests, and how often each is sent."""
BAD = (b"{", b"[]", b'{"prompt": 5}', b'{"prompt": "a", "suffix": "z"}', b"\xff\xfe")


@dataclass
class Report:
    """What has come of all requests. seconds: of whole and streamed answers, from end to end.

    health: answers of /health, by status.
    """

    answered: Counter[str] = field(default_factory=Counter)
    busy: int = 0
    health: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    tokens: int = 0

    def as_dict(self, seconds: float) -> dict[str, Any]:
        """What is printed of it."""
        times = sorted(self.seconds)
        return {
            "answered": dict(self.answered),
            "told to come later": self.busy,
            "health by status": dict(self.health),
            "wrong": self.wrong[:20],
            "p50_seconds": round(times[len(times) // 2], 3) if times else None,
            "p95_seconds": round(times[int(len(times) * 0.95)], 3) if times else None,
            "tokens_per_second": round(self.tokens / seconds, 1),
        }


def body_of(prompt: str, **fields: Any) -> dict[str, Any]:
    """A request whose answer is always the same."""
    return {"prompt": prompt, "max_tokens": MAX_TOKENS, "temperature": 0, **fields}


async def alone(client: httpx.AsyncClient) -> dict[str, dict[str, Any]]:
    """The choice that each prompt gets while nobody else asks."""
    answers = {}
    for prompt in PROMPTS:
        answer = await client.post("/v1/completions", json=body_of(prompt))
        answer.raise_for_status()
        answers[prompt] = answer.json()["choices"][0]
    return answers


class Client:
    """Asks one request after the other. expected: choices by prompt. weights: of kinds."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        expected: Mapping[str, dict[str, Any]],
        report: Report,
        weights: Mapping[str, int],
        seed: int,
    ) -> None:
        self._http, self._expected, self._report = http, expected, report
        self._weights = weights
        self._random = random.Random(seed)

    async def run(self, until: float) -> None:
        """Ask again and again."""
        while monotonic() < until:
            kind = self._random.choices([*self._weights], [*self._weights.values()])[0]
            prompt = self._random.choice(PROMPTS)
            began = monotonic()
            try:
                done = await getattr(self, "_" + kind.replace("-", "_"))(prompt)
            except httpx.HTTPError as error:
                self._report.wrong.append(f"{kind}: {error!r}")
                continue
            if not done:
                self._report.busy += 1
                await asyncio.sleep(0.1)
                continue
            self._report.answered[kind] += 1
            if kind in ("stream", "whole"):
                self._report.seconds.append(monotonic() - began)

    async def _whole(self, prompt: str) -> bool:
        answer = await self._http.post("/v1/completions", json=body_of(prompt))
        if answer.status_code == 429:
            return False
        choice = answer.json().get("choices", [{}])[0]
        self._compare("whole", prompt, choice.get("text"), choice.get("finish_reason"))
        return True

    async def _stream(self, prompt: str) -> bool:
        body = body_of(prompt, stream=True)
        async with self._http.stream("POST", "/v1/completions", json=body) as answer:
            if answer.status_code == 429:
                return False
            lines = [line[6:] async for line in answer.aiter_lines() if line.startswith("data: ")]
        if lines[-1] != "[DONE]":
            self._report.wrong.append(f"stream: ends with {lines[-1]}")
            return True
        choices = [json.loads(line)["choices"][0] for line in lines[:-1]]
        text = "".join(choice["text"] for choice in choices)
        self._compare("stream", prompt, text, choices[-1]["finish_reason"])
        return True

    async def _hang_up(self, prompt: str) -> bool:
        if self._random.random() < 0.5:
            body = body_of(prompt, stream=True)
            async with self._http.stream("POST", "/v1/completions", json=body) as answer:
                if answer.status_code == 429:
                    return False
                async for _ in answer.aiter_lines():
                    if self._random.random() < 0.3:
                        return True
            return True
        try:
            timeout = self._random.uniform(0.01, 1.0)
            await self._http.post("/v1/completions", json=body_of(prompt), timeout=timeout)
        except httpx.TimeoutException:
            pass
        return True

    async def _bad(self, prompt: str) -> bool:
        kind = {"content-type": "application/json"}
        body = self._random.choice(BAD)
        answer = await self._http.post("/v1/completions", content=body, headers=kind)
        return self._expect_400("bad", answer)

    async def _too_long(self, prompt: str) -> bool:
        return await self._refused("too-long", body_of(prompt * 2000))

    async def _long_stop(self, prompt: str) -> bool:
        return await self._refused("long-stop", body_of(prompt, stop="a" * 1_000_000))

    async def _too_many(self, prompt: str) -> bool:
        return await self._refused("too-many", {**body_of(prompt), "n": 128, "max_tokens": 10**6})

    async def _refused(self, kind: str, body: dict[str, Any]) -> bool:
        return self._expect_400(kind, await self._http.post("/v1/completions", json=body))

    def _expect_400(self, kind: str, answer: httpx.Response) -> bool:
        if answer.status_code in (408, 429):  # 408: too many bodies arrive with this one
            return False
        if answer.status_code != 400 or "error" not in answer.json():
            self._report.wrong.append(f"{kind}: {answer.status_code} {answer.text[:200]}")
        return True

    def _compare(self, kind: str, prompt: str, text: str | None, reason: str | None) -> None:
        expected = self._expected[prompt]
        self._report.tokens += MAX_TOKENS
        if (text, reason) != (expected["text"], expected["finish_reason"]):
            self._report.wrong.append(f"{kind}: {prompt!r} got {text!r}, {reason}")


async def load(
    url: str,
    num_clients: int,
    seconds: float,
    pid: int | None = None,
    weights: Mapping[str, int] = WEIGHTS,
) -> dict[str, Any]:
    """Run clients for so many seconds; the figures. pid: of a server whose memory is watched."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as http:
        expected = await alone(http)
        report, memory = Report(), [_memory(pid)]
        clients = [Client(http, expected, report, weights, seed) for seed in range(num_clients)]
        began = monotonic()
        tasks = [asyncio.create_task(client.run(began + seconds)) for client in clients]
        tasks.append(asyncio.create_task(_watch(http, report, began + seconds)))
        while monotonic() < began + seconds:
            await asyncio.sleep(min(seconds / 10, began + seconds - monotonic() + 0.01))
            memory.append(_memory(pid))
        await asyncio.gather(*tasks)
        figures = report.as_dict(monotonic() - began)
        for _ in range(100):  # who has just left ends within a pass
            figures["left running"] = num_running((await http.get("/metrics")).text)
            if not figures["left running"]:
                break
            await asyncio.sleep(0.1)
    figures["memory_mb"] = memory if pid else None
    return figures


async def _watch(http: httpx.AsyncClient, report: Report, until: float) -> None:
    """Ask several times a second whether requests are taken and answered."""
    while monotonic() < until:
        report.health[(await http.get("/health", timeout=10)).status_code] += 1
        await asyncio.sleep(0.2)


def num_running(metrics: str) -> float:
    """Requests that share passes, by the answer of /metrics."""
    lines = metrics.splitlines()
    still = [line for line in lines if line.startswith("ov_specdec:num_requests_running")]
    return float(still[0].split()[-1])


def _memory(pid: int | None) -> int | None:
    return None if pid is None else psutil.Process(pid).memory_info().rss // 1_000_000


def main() -> None:
    """Load a server; the exit code is 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--pid", type=int)
    parser.add_argument("--kinds", default=",".join(WEIGHTS), help="those of: %(default)s")
    given = parser.parse_args()
    weights = {kind: WEIGHTS[kind] for kind in given.kinds.split(",")}
    figures = asyncio.run(load(given.url, given.clients, given.seconds, given.pid, weights))
    print(json.dumps(figures, indent=2))  # noqa: T201
    is_well = figures["health by status"].keys() == {200}
    sys.exit(bool(figures["wrong"] or figures["left running"] or not is_well))


if __name__ == "__main__":
    main()
