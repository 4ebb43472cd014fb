"""Writes the model of a GGUF file as a folder in the format of Hugging Face.

For servers that read no GGUF. Needs transformers, gguf and accelerate:

    python convert-gguf.py model.gguf folder
"""

import os
import sys

import torch
from gguf import GGUFReader
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

gguf, out = sys.argv[1:]
folder, file = os.path.split(os.path.abspath(gguf))
metadata = GGUFReader(gguf).fields

model = AutoModelForCausalLM.from_pretrained(
    folder, gguf_file=file, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
)
model.save_pretrained(out)

tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
tokenizer.chat_template = metadata["tokenizer.chat_template"].contents()
tokenizer.model_max_length = model.config.max_position_embeddings
if metadata["tokenizer.ggml.pre"].contents() == "smollm":
    # Transformers ignores the name of the splitter, which this model needs.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
tokenizer.save_pretrained(out)
