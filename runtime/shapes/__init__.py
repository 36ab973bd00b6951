"""How handlers are called: one module per shape."""
