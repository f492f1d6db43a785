"""OpenAI's interface, with what vLLM adds to it, as a `Dialect`."""
