import json
import os
import re
import signal
import subprocess
import sys

from harness import run, tokens

program = os.path.join(os.path.dirname(sys.executable), "llm")


def chat(job, prompt):
    folder = os.path.abspath(f"user-{prompt}")
    os.makedirs(folder, exist_ok=True)
    model = {"model_id": "tried", "model_name": job["model"], "api_base": job["url"]}
    # Without the name of a key, llm sends "DUMMY_KEY" in spite of `--key`.
    model["api_key_name"] = "inkwell"
    with open(os.path.join(folder, "extra-openai-models.yaml"), "w") as file:
        json.dump([model], file)  # JSON is YAML.
    arguments = ["-m", "tried", "--key", job["key"], "-u", "--no-log"] + ([] if job["stream"] else ["--no-stream"])
    with subprocess.Popen(
        [program, "prompt", *arguments, prompt],
        env={**os.environ, "LLM_USER_PATH": folder},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        text = ""
        try:
            # The last line end is llm's own.
            while piece := child.stdout.read1().decode():
                text += piece
                if job["leave_after"]:
                    for word in piece.split():
                        yield word
            if not job["leave_after"]:
                yield text.removesuffix("\n")
        finally:
            child.send_signal(signal.SIGINT)
        problem = child.stderr.read().decode()
        if child.wait() != 0:
            raise RuntimeError(problem)
        usage = re.search(r"Token usage: ([\d,]+) input, ([\d,]+) output", problem)
        if usage:
            yield tokens(*(int(number.replace(",", "")) for number in usage.groups()))


run(chat, None)
