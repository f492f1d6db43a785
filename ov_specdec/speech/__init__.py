"""Speech to text: recordings in, transcriptions out, on the same decoding as text."""
