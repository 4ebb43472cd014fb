"""Streams an answer with the OpenAI SDK for Python.

INKWELL_KEY=ink_... python3 examples/chat.py "What is an inkwell?"
"""

import os
import sys

import openai

client = openai.OpenAI(
    base_url=os.environ.get("INKWELL_URL", "http://127.0.0.1:8080") + "/v1",
    api_key=os.environ["INKWELL_KEY"],
)
question = sys.argv[1] if len(sys.argv) > 1 else "What is an inkwell?"

try:
    model = os.environ.get("INKWELL_MODEL") or client.models.list().data[0].id
    stream = client.chat.completions.create(
        model=model,
        stream=True,
        stream_options={"include_usage": True},
        messages=[{"role": "user", "content": question}],
    )
    for chunk in stream:
        if chunk.choices:
            print(chunk.choices[0].delta.content or "", end="", flush=True)
        if chunk.usage:
            print(f"\n{chunk.usage.prompt_tokens} + {chunk.usage.completion_tokens} tokens")
except openai.APIStatusError as error:
    if error.code not in ("insufficient_credits", "cap_reached"):
        raise
    # The message has the cost, what is left, and the remedies that help.
    sys.exit(error.message)
