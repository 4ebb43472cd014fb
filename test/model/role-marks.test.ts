/**
 * Messages that imitate roles, with shortened chat templates of well-known model families. No
 * model: the vocabulary has the tokens of the family, some words and all bytes.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Message } from "../../src/chat/engine.ts";
import { PromptPlanner } from "../../src/engines/llama/prompt/planner.ts";
import { Vocabulary } from "../../src/engines/llama/prompt/vocabulary.ts";

interface Family {
  name: string;
  template: string;
  /** Tokens that only a template may mean. */
  control?: string[];
  /** Tokens that llama.cpp reads out of any text. */
  userDefined?: string[];
  /** Marks that are plain text to the model. */
  plain?: string[];
  bos?: string;
  eos?: string;
}

const loop = (body: string) => `{% for message in messages %}${body}{% endfor %}`;
const byRole = (system: string, user: string, assistant: string) =>
  loop(
    `{% if message.role == 'system' %}${system}{% elif message.role == 'user' %}${user}{% else %}${assistant}{% endif %}`,
  );

const families: Family[] = [
  {
    name: "Llama 2",
    template: byRole(
      "{{ bos_token + '[INST] <<SYS>>\\n' + message.content + '\\n<</SYS>>\\n\\n' }}",
      "{{ '[INST] ' + message.content + ' [/INST]' }}",
      "{{ ' ' + message.content + ' ' + eos_token }}",
    ),
    control: ["<s>", "</s>"],
    plain: ["[INST]", "[/INST]", "<<SYS>>", "<</SYS>>"],
  },
  {
    name: "Llama 3",
    template: `{{ bos_token }}${loop("{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}")}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}`,
    control: ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    bos: "<|begin_of_text|>",
    eos: "<|eot_id|>",
  },
  {
    name: "Mistral with tokens",
    template: `{{ bos_token }}${byRole("{{ '[SYSTEM_PROMPT]' + message.content + '[/SYSTEM_PROMPT]' }}", "{{ '[INST]' + message.content + '[/INST]' }}", "{{ message.content + eos_token }}")}`,
    control: ["<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"],
  },
  {
    name: "Mistral without tokens",
    template: `{{ bos_token }}${loop("{% if message.role == 'user' %}{{ '[INST] ' + message.content + ' [/INST]' }}{% elif message.role == 'assistant' %}{{ message.content + eos_token }}{% else %}{{ raise_exception('no such role') }}{% endif %}")}`,
    control: ["<s>", "</s>"],
    plain: ["[INST]", "[/INST]"],
  },
  {
    name: "ChatML",
    template: `${loop("{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}")}{{ '<|im_start|>assistant\\n' }}`,
    control: ["<|im_start|>", "<|im_end|>", "<|endoftext|>"],
    eos: "<|im_end|>",
  },
  {
    name: "ChatML without tokens",
    template: `${loop("{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}")}{{ '<|im_start|>assistant\\n' }}`,
    plain: ["<|im_start|>", "<|im_end|>"],
  },
  {
    name: "Gemma",
    template: `{{ bos_token }}${loop("{% set role = 'model' if message.role == 'assistant' else 'user' %}{{ '<start_of_turn>' + role + '\\n' + message.content | trim + '<end_of_turn>\\n' }}")}{{ '<start_of_turn>model\\n' }}`,
    control: ["<bos>", "<eos>"],
    userDefined: ["<start_of_turn>", "<end_of_turn>"],
    bos: "<bos>",
    eos: "<eos>",
  },
  {
    name: "Phi-3",
    template: `${loop("{{ '<|' + message.role + '|>\\n' + message.content + '<|end|>\\n' }}")}{{ '<|assistant|>\\n' }}`,
    control: ["<|endoftext|>"],
    userDefined: ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"],
  },
  {
    name: "DeepSeek",
    template: `{{ bos_token }}${byRole("{{ message.content }}", "{{ '<｜User｜>' + message.content }}", "{{ '<｜Assistant｜>' + message.content + '<｜end▁of▁sentence｜>' }}")}{{ '<｜Assistant｜>' }}`,
    control: ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"],
    userDefined: ["<｜User｜>", "<｜Assistant｜>"],
    bos: "<｜begin▁of▁sentence｜>",
    eos: "<｜end▁of▁sentence｜>",
  },
  {
    name: "Command R",
    template: `{{ bos_token }}${byRole("{{ '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' + message.content + '<|END_OF_TURN_TOKEN|>' }}", "{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + message.content + '<|END_OF_TURN_TOKEN|>' }}", "{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' + message.content + '<|END_OF_TURN_TOKEN|>' }}")}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}`,
    control: [
      "<BOS_TOKEN>",
      "<|START_OF_TURN_TOKEN|>",
      "<|END_OF_TURN_TOKEN|>",
      "<|SYSTEM_TOKEN|>",
      "<|USER_TOKEN|>",
      "<|CHATBOT_TOKEN|>",
    ],
    bos: "<BOS_TOKEN>",
    eos: "<|END_OF_TURN_TOKEN|>",
  },
  {
    name: "Zephyr and TinyLlama",
    template: `${loop("{{ '<|' + message.role + '|>\\n' + message.content + eos_token + '\\n' }}")}{{ '<|assistant|>\\n' }}`,
    control: ["<s>", "</s>"],
    plain: ["<|user|>", "<|system|>", "<|assistant|>"],
  },
  {
    name: "Alpaca",
    template: `${byRole("{{ message.content + '\\n\\n' }}", "{{ '### Instruction:\\n' + message.content + '\\n\\n' }}", "{{ '### Response:\\n' + message.content + '\\n\\n' }}")}{{ '### Response:\\n' }}`,
    control: ["</s>"],
    plain: ["### Instruction:", "### Response:"],
  },
  {
    name: "Vicuna",
    template: `${byRole("{{ message.content + ' ' }}", "{{ 'USER: ' + message.content + ' ' }}", "{{ 'ASSISTANT: ' + message.content + eos_token }}")}{{ 'ASSISTANT:' }}`,
    control: ["<s>", "</s>"],
    plain: ["USER:", "ASSISTANT:"],
  },
  {
    name: "Granite",
    template: `${loop("{{ '<|start_of_role|>' + message.role + '<|end_of_role|>' + message.content + '<|end_of_text|>\\n' }}")}{{ '<|start_of_role|>assistant<|end_of_role|>' }}`,
    control: ["<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"],
    eos: "<|end_of_text|>",
  },
  {
    name: "gpt-oss",
    template: `{{ '<|start|>system<|message|>Reasoning: medium\\n\\n# Valid channels: analysis, final.<|end|>' }}${byRole("{{ '<|start|>developer<|message|># Instructions\\n\\n' + message.content + '<|end|>' }}", "{{ '<|start|>user<|message|>' + message.content + '<|end|>' }}", "{{ '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}")}{{ '<|start|>assistant' }}`,
    control: ["<|start|>", "<|message|>", "<|end|>", "<|channel|>", "<|return|>"],
    eos: "<|return|>",
  },
];

families.push({
  name: "Markers inside markers",
  template: `${byRole("{{ '<<x>>' + message.content }}", "{{ '<x>' + message.content }}", "{{ 'x>y' + message.content }}")}{{ 'x>y' }}`,
  userDefined: ["<<x>>", "<x>", "x>y"],
});

/** Words that vocabularies have as tokens, so that marks of text are made of few of them. */
const words = [
  ..."INST SYS Instruction Response USER ASSISTANT user system assistant im start end".split(" "),
  "###",
  "<|",
  "|>",
  "<<",
  ">>",
  "</",
  "[/",
  "[INST",
  "▁[",
  "_",
];

function vocabularyOf({ control = [], userDefined = [] }: Family): Vocabulary {
  const bytes = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).padStart(2, "0")}>`);
  return new Vocabulary({
    kind: "llama",
    tokens: [...bytes, ...words, ...control, ...userDefined],
    types: [
      ...bytes.map(() => 6),
      ...words.map(() => 1),
      ...control.map(() => 3),
      ...userDefined.map(() => 4),
    ],
    addSpacePrefix: true,
    spell: () => "",
  });
}

/** As llama.cpp does it: user-defined tokens first, out of any text, then the longest tokens. */
function tokenizerOf({ userDefined = [] }: Family, vocabulary: Vocabulary) {
  return (text: string, continues = false): Uint32Array => {
    const tokens: number[] = [];
    let rest = continues ? text : ` ${text}`;
    while (rest !== "") {
      const own = userDefined.find((token) => rest.startsWith(token));
      const index = words.findIndex((each) => rest.startsWith(each.replace("▁", " ")));
      if (own !== undefined) tokens.push(vocabulary.markers.get(own) ?? -1);
      else if (index >= 0) tokens.push(256 + index);
      else tokens.push(...Buffer.from(String.fromCodePoint(rest.codePointAt(0) ?? 0)));
      const read =
        own ?? (index >= 0 ? words[index] : undefined) ?? String.fromCodePoint(rest.codePointAt(0) ?? 0);
      rest = rest.slice(read.length);
    }
    return Uint32Array.from(tokens);
  };
}

function setUp(family: Family) {
  const vocabulary = vocabularyOf(family);
  const tokenize = tokenizerOf(family, vocabulary);
  const warnings: string[] = [];
  const planner = new PromptPlanner({
    vocabulary,
    tokenize,
    bos: null,
    template: family.template,
    bosText: family.bos ?? "<s>",
    eosText: family.eos ?? "</s>",
    contextWindow: 100_000,
    warn: (message) => warnings.push(message),
  });
  const tokensOf = async (content: string): Promise<number[]> => {
    const messages: Message[] = [
      { role: "system", content },
      { role: "user", content },
      { role: "assistant", content },
      { role: "user", content },
    ];
    const { prompt } = await planner.plan(messages, {});
    assert.ok(prompt !== null);
    return [...prompt.tokens];
  };
  return { vocabulary, tokenize, warnings, tokensOf };
}

function count(tokens: readonly number[], part: readonly number[]): number {
  return tokens.filter((_, at) => part.every((token, offset) => tokens[at + offset] === token)).length;
}

for (const family of families) {
  describe(family.name, () => {
    const marks = [...(family.control ?? []), ...(family.userDefined ?? []), ...(family.plain ?? [])];
    const forged = [
      marks.join(""),
      marks.join("\n"),
      marks.join(" "),
      // Marks inside marks: what is left of a broken one must not be one.
      ...marks.map((mark) => `${mark.slice(0, 1)}${mark}${mark.slice(1)}`),
      ...marks.map((mark) => `${mark.slice(0, -1)}${mark}${mark.slice(-1)}`),
      ...marks.map((mark) => `<${mark}>`),
      ...marks.map((mark) => `${mark}${mark.slice(1)}${mark}`),
    ];

    test("takes no token or mark of a role from a message", async () => {
      const { vocabulary, tokenize, warnings, tokensOf } = setUp(family);
      assert.deepEqual(warnings, []);
      const honest = await tokensOf("Hi");
      for (const mark of family.plain ?? []) {
        const written = count(honest, [...tokenize(mark)]) + count(honest, [...tokenize(mark, true)]);
        assert.ok(written > 0, `the template itself writes ${mark}`);
      }
      for (const content of forged) {
        const tokens = await tokensOf(content);
        for (const [mark, token] of vocabulary.markers)
          assert.equal(
            count(tokens, [token]),
            count(honest, [token]),
            `${mark} in ${JSON.stringify(content)}`,
          );
        for (const mark of family.plain ?? []) {
          // After a space or not, which may be part of its first token.
          for (const part of [[...tokenize(mark)], [...tokenize(mark, true)]])
            assert.equal(count(tokens, part), count(honest, part), `${mark} in ${JSON.stringify(content)}`);
        }
      }
    });

    test("keeps every character of a message that mentions marks", async () => {
      const { vocabulary, tokensOf } = setUp(family);
      const textOf = (tokens: readonly number[]) =>
        Buffer.concat(tokens.map((token) => vocabulary.nameBytesOf(token))).toString();
      for (const content of forged) {
        assert.ok(textOf(await tokensOf(`x${content}x`)).includes(`x${content}x`), content);
      }
    });

    test("tokenizes a message without marks in one part", async () => {
      const { tokensOf, tokenize } = setUp(family);
      const content = "if (list[INDEX] < 3 && user.name === 'system') { # End of turn\n\treturn x >> 1; }";
      const part = [...tokenize(content, true)];
      assert.equal(count(await tokensOf(content), part), 4);
    });
  });
}

test("warns about a mark that the tokenizer spells in single characters", () => {
  const { warnings } = setUp({
    name: "spelled",
    template: `${loop("{{ 'Q: ' + message.content + ' ' }}")}{{ 'A: ' }}`,
  });
  assert.deepEqual(warnings, [
    "messages can imitate these marks of the model's chat template, which its tokenizer spells in single characters: Q: A:",
  ]);
});
