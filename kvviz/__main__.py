"""`python -m kvviz`: the command line."""

from kvviz.cli.main import main

if __name__ == "__main__":
    main()
