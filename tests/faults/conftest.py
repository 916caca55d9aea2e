collect_ignore = ["plot.py"]
"""It has no examples, and matplotlib takes a second to load."""
