"""Prompts for the embedded pair: how Python files, and pieces of them, begin."""

PROMPTS = (
    "def fibonacci(n):",
    "def quicksort(xs):",
    "class Stack:",
    "import argparse\n",
    "import os\nimport sys\n\n",
    "def main():\n    parser = argparse.ArgumentParser(",
    "class Node:\n    def __init__(self, value):",
    'with open("data.txt") as f:\n',
    "for i in range(10):\n",
    "try:\n    value = int(text)\n",
    "def read_json(path):\n    ",
    "from collections import defaultdict\n\n",
    "@property\ndef name(self):\n",
    "if __name__ == '__main__':\n",
    "x = [1, 2, 3]\nprint(",
    "def is_prime(n: int) -> bool:\n    ",
    "class Matrix:\n    def __add__(self, other):",
    "async def fetch(url):\n",
    "# größe, 日本語, 😀\nname = ",
    "return ",
)
