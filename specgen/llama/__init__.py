"""llama.cpp through llama-cpp-python's low-level API. The only package that imports `llama_cpp`."""
