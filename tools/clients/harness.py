"""Runs the jobs of `npm run clients` with a client, and prints a line of JSON for each.

A program calls `run` with two functions that take a job:

- `chat(job, prompt)` yields pieces of text, and dicts with `prompt_tokens` and `completion_tokens`.
- `models(job)` returns a list of ids, or is None if the client has no such list.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor


def error_of(error):
    parts = [type(error).__name__, str(error)]
    return " ".join(parts + [str(getattr(error, name)) for name in ("status_code", "code") if hasattr(error, name)])


def answer_of(chat, job, prompt):
    answer = {"text": ""}
    try:
        pieces = 0
        events = chat(job, prompt)
        for event in events:
            if isinstance(event, dict):
                answer.update(event)
                continue
            answer["text"] += event
            pieces += 1 if event else 0
            if event and pieces == job["leave_after"]:
                events.close()
                break
    except Exception as error:
        answer["error"] = error_of(error)
    return answer


def models_of(models, job):
    try:
        return {"models": models(job)}
    except Exception as error:
        return {"error": error_of(error)}


def run(chat, models):
    for job in json.load(sys.stdin):
        if job["name"] == "models":
            if models is None:
                continue
            answers = [models_of(models, job)]
        else:
            prompts = [f"{job['name']} {n}" for n in range(job["times"])]
            with ThreadPoolExecutor(len(prompts)) as pool:
                answers = list(pool.map(lambda prompt: answer_of(chat, job, prompt), prompts))
        print(json.dumps({"name": job["name"], "answers": answers}), flush=True)


def tokens(prompt_tokens, completion_tokens):
    return {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
