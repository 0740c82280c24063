"""Measurements of pairs on this machine, as values; what they look like is the command line's business."""
