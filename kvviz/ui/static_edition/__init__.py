"""The edition without a server: a folder that any web server shows. Its scripts are in `assets/static/`."""
