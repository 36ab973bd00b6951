"""A chat completion interface made with FastAPI, whole or streamed; a clearly named stand-in does the talking."""

import asyncio
import json
from typing import Literal

import stand_in
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

app = FastAPI(title="chat", description="Answers come from a stand-in, not from a language model.")


class Message(BaseModel):
    """One turn of the conversation."""

    role: Literal["system", "user", "assistant"]
    content: str = Field(max_length=100_000)


class Conversation(BaseModel):
    """What is asked."""

    messages: list[Message] = Field(min_length=1, max_length=1000)
    model: str = stand_in.NAME
    stream: bool = False


@app.get("/")
async def about():
    """What this is."""
    return {"model": stand_in.NAME, "note": "a stand-in answers here, not a language model"}


@app.post("/v1/chat/completions")
async def complete(asked: Conversation):
    """The next turn of a conversation; with `stream` word by word as server-sent events."""
    text = stand_in.reply([(message.role, message.content) for message in asked.messages])
    if asked.stream:
        return StreamingResponse(_events(text), media_type="text/event-stream")
    message = {"role": "assistant", "content": text}
    return {
        "object": "chat.completion",
        "model": stand_in.NAME,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }


async def _events(text):
    for piece in stand_in.pieces(text):
        yield _event({"index": 0, "delta": {"content": piece}, "finish_reason": None})
        await asyncio.sleep(0)
    yield _event({"index": 0, "delta": {}, "finish_reason": "stop"})
    yield "data: [DONE]\n\n"


def _event(choice):
    chunk = {"object": "chat.completion.chunk", "model": stand_in.NAME, "choices": [choice]}
    return f"data: {json.dumps(chunk)}\n\n"
