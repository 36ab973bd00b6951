"""One module for each command, or for a few of a kind: options in, words out; the work is done beside this package."""
