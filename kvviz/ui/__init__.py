"""What the pages are made of. Only this package, `pages/` and `app.py` import Streamlit."""
