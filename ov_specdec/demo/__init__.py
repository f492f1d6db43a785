"""The page that shows plain and speculative decoding side by side.

Only `page`, `parts` and `speech_page` need gradio.
"""
