"""Speech to text with Whisper, decoded by the same engine as text."""
