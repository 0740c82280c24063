"""Ways to propose tokens, one file each, all behind `specgen.engine.drafter.Drafter`. Never imports `specgen.llama`."""
