from harness import run, tokens
from langchain_openai import ChatOpenAI


def chat(job, prompt):
    # With a base URL, usage in a stream is off by default.
    model = ChatOpenAI(base_url=job["url"], api_key=job["key"], model=job["model"], stream_usage=True)
    stream = model.stream(prompt) if job["stream"] else iter([model.invoke(prompt)])
    try:
        for message in stream:
            yield message.text
            usage = message.usage_metadata
            if usage:
                yield tokens(usage["input_tokens"], usage["output_tokens"])
    finally:
        if job["stream"]:
            stream.close()


run(chat, None)
