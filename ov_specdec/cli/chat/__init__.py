"""`ov-specdec chat`: a conversation in the terminal."""

from ov_specdec.cli.chat.command import chat

__all__ = ["chat"]
