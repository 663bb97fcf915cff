"""Model families: each reads its own config fields into a shape."""
