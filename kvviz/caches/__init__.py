"""Ways of keeping keys and values, each in a short file of its own, over one small interface (`base.py`).

They know no model: one layer's new keys and values in, those to attend over out. `under.py` puts them under any
transformers model, and the transformer from scratch takes them as they are.
"""
