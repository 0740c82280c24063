"""The command line. Commands are wiring; `_output` is the only module that writes to a stream."""
