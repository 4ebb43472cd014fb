from harness import run, tokens
from openai import OpenAI


def client_of(job):
    return OpenAI(base_url=job["url"], api_key=job["key"])


def chat(job, prompt):
    completions = client_of(job).chat.completions
    request = {"model": job["model"], "messages": [{"role": "user", "content": prompt}]}
    if not job["stream"]:
        whole = completions.create(**request)
        yield whole.choices[0].message.content
        yield tokens(whole.usage.prompt_tokens, whole.usage.completion_tokens)
        return
    with completions.create(**request, stream=True, stream_options={"include_usage": True}) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                yield choice.delta.content or ""
            if chunk.usage:
                yield tokens(chunk.usage.prompt_tokens, chunk.usage.completion_tokens)


run(chat, lambda job: [model.id for model in client_of(job).models.list()])
