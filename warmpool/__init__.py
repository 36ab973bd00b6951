"""What decides: which worker takes a call, how many workers a revision wants, where they go, when they leave.

No I/O, no clock, no logging, no randomness of its own: (event, now) -> commands.
"""
