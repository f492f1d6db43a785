"""The demo page with plain and speculative decoding side by side.

Only `page`, `parts` and `speech_page` need gradio.
"""
