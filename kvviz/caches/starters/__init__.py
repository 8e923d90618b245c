"""Files that users start their own cache design from, as `kvviz new-cache` writes them (`write.py`).

Each file here is a solved exercise that kvviz itself can run, with the unsolved lines beside the solved ones:

    # solution
    (lines that solve it)
    # or, to start from
    # (the line that a starter has instead)
    # end

`starters.toml` has what each is about, its hints and what it is held to.
"""
