"""The HTTP side: a lean front for calls of functions, aiohttp for everything else, on one port."""
