"""`python -m specgen` is the `specgen` command."""

from specgen.cli.app import main

if __name__ == "__main__":
    main()
