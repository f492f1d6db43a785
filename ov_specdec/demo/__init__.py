"""The page that shows plain and speculative decoding side by side.

Only `page` needs gradio.
"""
