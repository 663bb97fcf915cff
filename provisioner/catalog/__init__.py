"""GPUs, instance types, offers and prices: dated, sourced facts."""
