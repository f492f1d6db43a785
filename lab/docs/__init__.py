"""Writes the parts of pages that are made from code and measurements, and their pictures."""
