"""How many tokens to draft: what passes cost, what is accepted, what pays."""
