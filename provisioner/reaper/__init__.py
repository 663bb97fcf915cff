"""From outside: which machines are idle, over age or stopped too long, and what may be done with them."""
