"""GGUF files: the strict reader of their header, and the config that a header stands for. No torch, no package gguf."""
