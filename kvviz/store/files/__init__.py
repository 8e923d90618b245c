"""A finished comparison as a file (JSON, CSV, Parquet, one HTML page), and the strict way back.

The HTML page can't call home: plotly.js, the figures and the whole comparison lie inside it, and its content security
policy names the hashes of its two scripts and no address, so a text of a run that got past the escaping would run
nothing and fetch nothing. Imported figures are recomputed where they can be: a file whose speed-up does not follow from
its times, or whose records tell of other tokens than its document, is refused.
"""
