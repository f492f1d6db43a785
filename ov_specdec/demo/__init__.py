"""The demo page with plain and speculative decoding side by side. Only its pages need gradio."""
