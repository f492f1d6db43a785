"""`--prompt-cache`: save the KV cache of a long system message in a file for later chats."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ov_specdec.cli.chat.conversation import Conversation
from ov_specdec.conflicts import CHAT_OPTIONS
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.runner.store import draft_file


def use_prompt_cache(
    models: SpeculativePipeline,
    file: Path,
    conversation: Conversation,
    options: Mapping[str, Any],
    note: Callable[[str], None],
) -> None:
    """Load the KV caches of the beginning of a conversation from a file, or write them to it.

    conversation: the system message at most. options: of later generations. note: called if the
    file holds another beginning. Raises `OptionError` for a file that cannot be used.
    """
    exists = file.exists()
    if exists:
        models.load_cache(file)
    # Most templates need a user's message. Its tokens differ from those of the first message of the
    # chat, and are rolled back then.
    beginning = conversation.with_message("user", "").messages
    rendering = {name: options[name] for name in CHAT_OPTIONS if name in options}
    stats = models.generate(beginning, max_new_tokens=1, **rendering).stats
    is_whole = exists and (models.draft is None or draft_file(file).exists())
    if exists and stats.cached_tokens < stats.prompt_tokens - 1:  # the last is always recomputed
        note(
            f"the prompt cache '{file}' matches {stats.cached_tokens} of the first "
            f"{stats.prompt_tokens} tokens of this chat: delete it to write a new one"
        )
    elif not is_whole:
        models.save_cache(file)
