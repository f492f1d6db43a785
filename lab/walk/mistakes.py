"""Mistakes on the command line and over HTTP, and what the message is to name."""

from lab.walk.environment import Environment

POST = "curl -sS -H 'content-type: application/json' http://127.0.0.1:8000"
CHAT = '{"messages": [{"role": "user", "content": "x"}]}'
BUT_FAIL = ">&2; false"  # curl takes an answer for a success

MISTAKES = {
    "ov-specdec genrate x": ("'genrate'", "generate"),
    "ov-specdec generate x --max-tokens 5": ("--max-tokens", "--max-new-tokens"),
    "ov-specdec generate x --chat": ("--chat", "ov-specdec chat"),
    "ov-specdec generate x --temprature 1": ("mean --temperature",),
    "ov-specdec generate def fibonacci": ("'def fibonacci'", "quotes"),
    "ov-specdec run x": ("'run'", "generate"),
    "ov-specdec generate x --device cuda": ("Intel GPU",),
    "ov-specdec generate x --main /no/where": ("'/no/where' does not exist",),
    "ov-specdec generate x -ngl 99": ("-ngl", "--device"),
    "ov-specdec generate x --main model.gguf": ("model.gguf", "ov-specdec export --main owner/"),
    "ov-specdec generate x --drafter lookup": ("'lookup'", "prompt-lookup", "suffix"),
    "ov-specdec generate x --top-p 2": ("--top-p 2", "to 1"),
    "ov-specdec generate ''": ("prompt is empty",),
    "ov-specdec generate --prompt-file /no/file": ("--prompt-file", "/no/file"),
    "ov-specdec generate x --kv-cache-size 0.000000001": ("--kv-cache-size",),
    "ov-specdec generate x --profile /no/profile": ("/no/profile", "ov-specdec tune"),
    "ov-specdec chat": ("chat template", "ov-specdec generate"),
    "ov-specdec batch /no/requests.jsonl --output out.jsonl": ("/no/requests.jsonl",),
    "ov-specdec transcribe /no/talk.wav --main models/main": ("/no/talk.wav",),
    "ov-specdec serve --port 99999": ("--port 99999", "65535"),
    "ov-specdec export": ("--main",),
    f"{POST}/chat/completions -d '{{}}' {BUT_FAIL}": ("/v1/chat/completions",),
    f"{POST}/v1/chat/completions -d '{CHAT}' {BUT_FAIL}": ("/v1/completions", "--chat-template"),
}


def make(mistake: str, environment: Environment) -> str:
    """Make a mistake; returns what is wrong with the answer."""
    done = environment.run(mistake)
    message = done.stderr.strip()
    problems = [f"it does not name {words}" for words in MISTAKES[mistake] if words not in message]
    if done.returncode == 0 or done.stdout:
        problems.append(f"exit {done.returncode}, with {len(done.stdout)} characters of output")
    if "Traceback" in message or len(message.splitlines()) > 6:
        problems.append("it is too long to be read")
    return f"{', '.join(problems)}: {message[-200:]}" if problems else ""
