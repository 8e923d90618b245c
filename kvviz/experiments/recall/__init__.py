"""Names and numbers that a text states early, asked for at its end: what each lossy cache design still recalls."""
