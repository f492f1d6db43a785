"""`--prompt-cache`: a long system message is read once, and kept in a file for later chats."""

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
    """Have the KV caches hold the beginning of a conversation, from a file or for it.

    conversation: the system message at most. options: of the generations to come. note: told where
    the file holds another beginning. Raises `OptionError` for a file that cannot be used.
    """
    exists = file.exists()
    if exists:
        models.load_cache(file)
    # Most templates want a user's message. What it adds is not in the first one of the chat, and
    # is rolled back then.
    beginning = conversation.with_message("user", "").messages
    rendering = {name: options[name] for name in CHAT_OPTIONS if name in options}
    stats = models.generate(beginning, max_new_tokens=1, **rendering).stats
    is_whole = exists and (models.draft is None or draft_file(file).exists())
    if exists and stats.cached_tokens < stats.prompt_tokens - 1:  # the last one is always read
        note(
            f"the prompt cache '{file}' holds {stats.cached_tokens} of the {stats.prompt_tokens} "
            "tokens that this chat begins with: delete it to have it written anew"
        )
    elif not is_whole:
        models.save_cache(file)
