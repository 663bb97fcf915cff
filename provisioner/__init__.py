"""Sizes, chooses, creates and tears down GPU machines for generative AI."""
