"""What a generation returns: chunks of text, their origins, log-probabilities, statistics."""
