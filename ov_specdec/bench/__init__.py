"""The benchmark: this project's ways to decode and its peers', measured alike and in turns."""
