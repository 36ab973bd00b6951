"""The `samovar` command."""


def main() -> None:
    """Entry point."""
