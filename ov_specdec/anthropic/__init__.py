"""Anthropic's Messages: requests and answers as Claude Code and Anthropic's clients know them."""
