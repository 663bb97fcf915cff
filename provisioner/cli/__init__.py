"""Commands: they parse, call one function, render and exit."""
