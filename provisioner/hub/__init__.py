"""Reading a model's config and shard headers, from a hub or a folder, for ``gpuprov models add``."""
