"""From prompts to chunks of text: models, requests, open prompts, saved caches."""
