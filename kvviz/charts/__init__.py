"""Plain data in, Plotly figure out. Imported only when a figure is asked for."""
