import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from harness import run

info = {"vision": False, "function_calling": False, "json_output": False, "structured_output": False}


def chat(job, prompt):
    client = OpenAIChatCompletionClient(
        model=job["model"],
        base_url=job["url"],
        api_key=job["key"],
        model_info={**info, "family": "unknown"},
        # By default each message has the field `name`.
        include_name_in_message=False,
    )
    agent = AssistantAgent("tried", model_client=client, system_message=None, model_client_stream=True)

    async def pieces():
        events = agent.run_stream(task=prompt)
        return [event.content async for event in events if isinstance(event, ModelClientStreamingChunkEvent)]

    yield from asyncio.run(pieces())


run(chat, None)
