"""Measurements of accuracy and speed; speed as ratios against a floor measured in the same run."""
