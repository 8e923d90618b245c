"""Turns plain data into Plotly figures. Import this package only to draw a figure."""
