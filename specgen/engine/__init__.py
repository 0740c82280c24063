"""The algorithm of speculative decoding. Pure Python and numpy: no llama.cpp, no files, no terminal."""
