import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from harness import run, tokens

litellm.suppress_debug_info = True


def chat(job, prompt):
    request = {"api_base": job["url"], "api_key": job["key"], "model": f"openai/{job['model']}"}
    request["messages"] = [{"role": "user", "content": prompt}]
    if not job["stream"]:
        whole = litellm.completion(**request)
        yield whole.choices[0].message.content
        yield tokens(whole.usage.prompt_tokens, whole.usage.completion_tokens)
        return
    stream = litellm.completion(**request, stream=True, stream_options={"include_usage": True})
    try:
        for chunk in stream:
            for choice in chunk.choices:
                yield choice.delta.content or ""
            usage = getattr(chunk, "usage", None)
            if usage:
                yield tokens(usage.prompt_tokens, usage.completion_tokens)
    finally:
        stream.completion_stream.close()


def models(job):
    return [
        name.removeprefix("openai/")
        for name in litellm.get_valid_models(
            check_provider_endpoint=True,
            custom_llm_provider="openai",
            api_key=job["key"],
            api_base=job["url"],
        )
    ]


run(chat, models)
