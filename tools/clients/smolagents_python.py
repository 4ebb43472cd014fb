from harness import run
from smolagents import ChatMessage, OpenAIModel


def chat(job, prompt):
    model = OpenAIModel(
        model_id=job["model"],
        api_base=job["url"],
        api_key=job["key"],
        # By default content is a list of parts.
        flatten_messages_as_text=True,
    )
    content = [{"type": "text", "text": prompt}]
    for delta in model.generate_stream([ChatMessage(role="user", content=content)]):
        yield delta.content or ""


run(chat, None)
