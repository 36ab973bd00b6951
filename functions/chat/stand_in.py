"""A stand-in for a language model: says what it was told, in whole sentences, and always the same for the same words.

It is here so that the sample runs anywhere. Put your model's own call in the place of `reply`.
"""

NAME = "stand-in"


def reply(messages):
    """The answer to a conversation: a list of (role, text)."""
    said = [text for role, text in messages if role == "user"]
    if not said:
        return "I am a stand-in, not a language model. Nobody has said anything yet."
    words = said[-1].split()
    longest = max(words, key=len, default="")
    return (
        f"I am a stand-in, not a language model. You have spoken {_times(len(said))}; "
        f"your last message has {_counted(len(words), 'word')}, the longest being \"{longest}\"."
    )


def pieces(text):
    """A text in the pieces in which a model would bring it forth: word by word, spaces kept."""
    words = text.split(" ")
    return [word if place == 0 else f" {word}" for place, word in enumerate(words)]


def _times(count):
    return "once" if count == 1 else f"{count} times"


def _counted(count, what):
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
