"""specgen: local speculative decoding with GGUF models."""

__version__ = "0.1.0"
